// Functions of the runtime that programs launch like kernels, by name: what is better written in C++ than generated.
#pragma once

#include <string>
#include <vector>

#include "program.h"

namespace treadle {

// nullptr if there is no function of this name.
KernelFunction find_host_function(const std::string& name);

std::vector<std::string> host_function_names();

}  // namespace treadle
