#pragma once
#error \
    "refused: ff/mpmc/MPMCqueues.hpp is one of FastFlow's inner parts; expected standard containers, or am::channel"
