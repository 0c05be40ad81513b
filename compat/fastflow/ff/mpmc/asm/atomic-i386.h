#pragma once
#error \
    "refused: ff/mpmc/asm/atomic-i386.h is one of FastFlow's inner parts; expected standard containers, or am::channel"
