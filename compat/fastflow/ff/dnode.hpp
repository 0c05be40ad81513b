#pragma once
#error \
    "refused: ff/dnode.hpp is FastFlow's distributed interface of before version 3; expected ff/dff.hpp"
