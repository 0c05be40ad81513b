#pragma once
#error \
    "refused: ff/ff_queue.hpp is one of FastFlow's inner parts; expected standard containers, or am::channel"
