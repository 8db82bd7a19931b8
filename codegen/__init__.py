"""Loop-level functions -> LLVM IR -> object code. Imports ir only. Start reading in cpu/."""
