#pragma once
#error \
    "refused: ff/mpmc/asm/abstraction_dcas.h is one of FastFlow's inner parts; expected standard containers, or am::channel"
