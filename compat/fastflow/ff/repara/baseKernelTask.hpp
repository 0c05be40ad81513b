#pragma once
#error \
    "refused: ff/repara/baseKernelTask.hpp is for nodes on an FPGA; expected nodes on threads, such as those of ff/ff.hpp"
