#pragma once
#error \
    "refused: ff/stencilReduceOCL_macros.hpp is for nodes on a GPU; expected nodes on threads, such as those of ff/ff.hpp"
