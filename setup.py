"""Maps the five folders to their import names and builds the C++ core. Everything else is in pyproject.toml."""

from pathlib import Path

from pybind11.setup_helpers import Pybind11Extension, build_ext
from setuptools import find_packages, setup

FOLDERS = {
    "treadle": "frontend",
    "treadle.ir": "ir",
    "treadle.passes": "passes",
    "treadle.codegen": "codegen",
    "treadle.runtime": "runtime",
}

packages = [
    package
    for name, folder in FOLDERS.items()
    for package in (name, *(f"{name}.{sub}" for sub in find_packages(folder)))
]

core = Pybind11Extension(
    "treadle.runtime._core",
    sorted(str(path) for path in Path("runtime/csrc").glob("*.cpp")),
    depends=sorted(str(path) for path in Path("runtime/csrc").glob("*.h")),
    cxx_std=17,
    extra_compile_args=["-O2", "-g0", "-pthread", "-Wall", "-Wextra"],
    extra_link_args=["-pthread"],
)

setup(
    package_dir=FOLDERS,
    packages=packages,
    package_data={"treadle.runtime": ["_core.pyi"]},
    ext_modules=[core],
    cmdclass={"build_ext": build_ext},
)
