#pragma once
#error \
    "refused: ff/mpmc/asm/atomic-x86_64.h is one of FastFlow's inner parts; expected standard containers, or am::channel"
