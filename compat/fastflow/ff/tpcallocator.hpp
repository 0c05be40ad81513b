#pragma once
#error \
    "refused: ff/tpcallocator.hpp is for nodes on an FPGA; expected nodes on threads, such as those of ff/ff.hpp"
