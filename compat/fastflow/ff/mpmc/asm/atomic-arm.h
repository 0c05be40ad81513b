#pragma once
#error \
    "refused: ff/mpmc/asm/atomic-arm.h is one of FastFlow's inner parts; expected standard containers, or am::channel"
