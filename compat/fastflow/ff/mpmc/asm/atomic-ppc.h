#pragma once
#error \
    "refused: ff/mpmc/asm/atomic-ppc.h is one of FastFlow's inner parts; expected standard containers, or am::channel"
