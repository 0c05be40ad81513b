#pragma once
#error \
    "refused: ff/tpcnode.hpp is for nodes on an FPGA; expected nodes on threads, such as those of ff/ff.hpp"
