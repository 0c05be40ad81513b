#pragma once
#error \
    "refused: ff/staticlinkedlist.hpp is one of FastFlow's inner parts; expected standard containers, or am::channel"
