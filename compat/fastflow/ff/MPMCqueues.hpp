#pragma once
#error \
    "refused: ff/MPMCqueues.hpp is one of FastFlow's inner parts; expected standard containers, or am::channel"
