#pragma once
#error \
    "refused: ff/tpc/tpcEnvironment.hpp is for nodes on an FPGA; expected nodes on threads, such as those of ff/ff.hpp"
