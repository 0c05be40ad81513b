#pragma once
#error \
    "refused: ff/squeue.hpp is one of FastFlow's inner parts; expected standard containers, or am::channel"
