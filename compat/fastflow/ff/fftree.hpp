#pragma once
#error \
    "refused: ff/fftree.hpp is one of FastFlow's inner parts; expected getStages(), getWorkers() and the like of blocks"
