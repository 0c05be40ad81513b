#pragma once
#error \
    "refused: ff/tpc/tpc_api.h is for nodes on an FPGA; expected nodes on threads, such as those of ff/ff.hpp"
