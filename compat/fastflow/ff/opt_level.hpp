#pragma once

#include <ff/config.hpp>

namespace ff {

/// What optimize_static() is asked for.
struct OptLevel {
    ssize_t max_nb_threads = MAX_NUM_THREADS;
    ssize_t max_mapped_threads = MAX_NUM_THREADS;
    int verbose_level = 0;
    bool no_initial_barrier = false;
    bool no_default_mapping = false;
    bool blocking_mode = false;
    bool merge_with_emitter = false;
    bool remove_collector = false;
    bool merge_farms = false;
    bool introduce_a2a = false;
};
struct OptLevel1 : OptLevel {
    OptLevel1() { blocking_mode = no_initial_barrier = remove_collector = true; }
};
struct OptLevel2 : OptLevel1 {
    OptLevel2() { merge_with_emitter = merge_farms = true; }
};

}  // namespace ff
