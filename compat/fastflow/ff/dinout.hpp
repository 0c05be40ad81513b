#pragma once
#error \
    "refused: ff/dinout.hpp is FastFlow's distributed interface of before version 3; expected ff/dff.hpp"
