#include <algorithm>

#include "runtime.hpp"

using namespace amalgam::argobots;

namespace amalgam::argobots {

void free_xstream(ABT_xstream_opaque& which) noexcept {
    runtime::get()->remove(which);
    ABT_sched_opaque& sched = *which.main_sched;
    which.stream.reset();
    delete &which;
    sched.main_of = nullptr;
    if (sched.automatic) free_sched(sched);
}

namespace {

/// The caller's; null on a plain thread.
ABT_xstream own_stream() noexcept {
    const ABT_thread_opaque* const who = self();
    return who == nullptr ? nullptr : who->stream.load(std::memory_order_relaxed);
}

int create_xstream(ABT_sched sched, int rank, ABT_xstream* made) {
    *made = nullptr;
    if (!initialized()) return ABT_ERR_UNINITIALIZED;
    return guarded([=] {
        if (sched != nullptr && sched->used()) return ABT_ERR_INV_SCHED;
        auto stream = std::make_unique<ABT_xstream_opaque>(false);
        ABT_sched_opaque& used =
            sched != nullptr ? *sched : create_sched(ABT_SCHED_DEFAULT, 0, nullptr, nullptr);
        stream->main_sched = &used;
        used.main_of = stream.get();
        try {
            if (!runtime::get()->add(*stream, rank)) throw failure{ABT_ERR_INV_XSTREAM_RANK};
            stream->start();
        } catch (...) {
            runtime::get()->remove(*stream);
            used.main_of = nullptr;
            if (sched == nullptr) free_sched(used);
            throw;
        }
        *made = stream.release();
        return ABT_SUCCESS;
    });
}

/// One of ABT_sched_create_basic() that found no use: the pools that were given stay the program's.
void free_unused(ABT_sched_opaque& which, int num_pools, const ABT_pool* given) noexcept {
    const auto keep = [=](int more) {
        for (int i = 0; given != nullptr && i < num_pools; ++i) {
            if (given[i] != nullptr) given[i]->schedulers.fetch_add(more);
        }
    };
    keep(1);
    free_sched(which);
    keep(-1);
}

int join_xstream(ABT_xstream which) {
    if (which == nullptr || which->primary) return ABT_ERR_INV_XSTREAM;
    if (own_stream() == which) return ABT_ERR_INV_XSTREAM;
    return guarded([which] {
        if (which->state.load() == ABT_XSTREAM_STATE_TERMINATED) return ABT_SUCCESS;
        if (between_ults::here()) return ABT_ERR_XSTREAM;
        which->join();
        return ABT_SUCCESS;
    });
}

}  // namespace

}  // namespace amalgam::argobots

int ABT_xstream_create(ABT_sched sched, ABT_xstream* newxstream) {
    return create_xstream(sched, -1, newxstream);
}

int ABT_xstream_create_basic(ABT_sched_predef predef, int num_pools, ABT_pool* pools,
                             ABT_sched_config config, ABT_xstream* newxstream) {
    ABT_sched sched = nullptr;
    const int error = ABT_sched_create_basic(predef, num_pools, pools, config, &sched);
    if (error != ABT_SUCCESS) return error;
    sched->automatic = true;
    const int failed = create_xstream(sched, -1, newxstream);
    if (failed != ABT_SUCCESS) free_unused(*sched, num_pools, pools);
    return failed;
}

int ABT_xstream_create_with_rank(ABT_sched sched, int rank, ABT_xstream* newxstream) {
    if (rank < 0) return ABT_ERR_INV_XSTREAM_RANK;
    return create_xstream(sched, rank, newxstream);
}

int ABT_xstream_free(ABT_xstream* xstream) {
    if (!initialized()) return ABT_ERR_UNINITIALIZED;
    if (*xstream == nullptr) return ABT_SUCCESS;
    if (const int error = join_xstream(*xstream)) return error;
    free_xstream(**xstream);
    *xstream = nullptr;
    return ABT_SUCCESS;
}

int ABT_xstream_join(ABT_xstream xstream) {
    if (!initialized()) return ABT_ERR_UNINITIALIZED;
    return join_xstream(xstream);
}

int ABT_xstream_revive(ABT_xstream xstream) {
    if (xstream == nullptr || xstream->primary) return ABT_ERR_INV_XSTREAM;
    if (xstream->state.load() != ABT_XSTREAM_STATE_TERMINATED) return ABT_ERR_INV_XSTREAM;
    return guarded([xstream] {
        xstream->start();
        return ABT_SUCCESS;
    });
}

int ABT_xstream_exit(void) {
    if (!initialized()) return ABT_ERR_UNINITIALIZED;
    ABT_xstream const here = own_stream();
    if (here == nullptr || here->primary) return ABT_ERR_INV_XSTREAM;
    if (caller_is_tasklet()) return ABT_ERR_INV_THREAD;
    here->exit_asked = true;
    return ABT_self_exit();
}

int ABT_xstream_cancel(ABT_xstream xstream) {
    if (xstream == nullptr || xstream->primary) return ABT_ERR_INV_XSTREAM;
    xstream->exit_asked = true;
    xstream->wake();
    return ABT_SUCCESS;
}

int ABT_xstream_self(ABT_xstream* xstream) {
    *xstream = nullptr;
    return ABT_self_get_xstream(xstream);
}

int ABT_xstream_self_rank(int* rank) {
    return ABT_self_get_xstream_rank(rank);
}

int ABT_xstream_set_rank(ABT_xstream xstream, int rank) {
    if (xstream == nullptr || xstream->primary) return ABT_ERR_INV_XSTREAM;
    if (rank < 0 || !runtime::get()->change_rank(*xstream, rank)) return ABT_ERR_INV_XSTREAM_RANK;
    return ABT_SUCCESS;
}

int ABT_xstream_get_rank(ABT_xstream xstream, int* rank) {
    if (xstream == nullptr) return ABT_ERR_INV_XSTREAM;
    *rank = xstream->rank.load();
    return ABT_SUCCESS;
}

int ABT_xstream_set_main_sched(ABT_xstream xstream, ABT_sched sched) {
    if (xstream == nullptr) return ABT_ERR_INV_XSTREAM;
    const bool ended = xstream->state.load() == ABT_XSTREAM_STATE_TERMINATED;
    if (!ended && own_stream() != xstream) return ABT_ERR_XSTREAM_STATE;
    if (!ended &&
        (caller_is_tasklet() || self()->kind == thread_kind::scheduler || between_ults::here()))
        return ABT_ERR_INV_THREAD;
    if (sched != nullptr && sched->used()) return ABT_ERR_INV_SCHED;
    return guarded([=] {
        xstream->set_main_sched(
            sched != nullptr ? *sched : create_sched(ABT_SCHED_DEFAULT, 0, nullptr, nullptr));
        return ABT_SUCCESS;
    });
}

int ABT_xstream_set_main_sched_basic(ABT_xstream xstream, ABT_sched_predef predef, int num_pools,
                                     ABT_pool* pools) {
    ABT_sched sched = nullptr;
    const int error = ABT_sched_create_basic(predef, num_pools, pools, nullptr, &sched);
    if (error != ABT_SUCCESS) return error;
    sched->automatic = true;
    const int failed = ABT_xstream_set_main_sched(xstream, sched);
    if (failed != ABT_SUCCESS) free_unused(*sched, num_pools, pools);
    return failed;
}

int ABT_xstream_get_main_sched(ABT_xstream xstream, ABT_sched* sched) {
    *sched = nullptr;
    if (xstream == nullptr) return ABT_ERR_INV_XSTREAM;
    *sched = runtime::get()->hold(*xstream).sched.get();
    return ABT_SUCCESS;
}

int ABT_xstream_get_main_pools(ABT_xstream xstream, int max_pools, ABT_pool* pools) {
    if (xstream == nullptr) return ABT_ERR_INV_XSTREAM;
    return ABT_sched_get_pools(runtime::get()->hold(*xstream).sched.get(), max_pools, 0, pools);
}

int ABT_xstream_get_state(ABT_xstream xstream, ABT_xstream_state* state) {
    if (xstream == nullptr) return ABT_ERR_INV_XSTREAM;
    const bool over = xstream->ended() && !xstream->primary;
    *state = over ? ABT_XSTREAM_STATE_TERMINATED : ABT_XSTREAM_STATE_RUNNING;
    return ABT_SUCCESS;
}

int ABT_xstream_equal(ABT_xstream xstream1, ABT_xstream xstream2, ABT_bool* result) {
    *result = xstream1 == xstream2;
    return ABT_SUCCESS;
}

int ABT_xstream_get_num(int* num_xstreams) {
    *num_xstreams = 0;
    if (!initialized()) return ABT_ERR_UNINITIALIZED;
    *num_xstreams = static_cast<int>(runtime::get()->number_of_streams());
    return ABT_SUCCESS;
}

int ABT_xstream_is_primary(ABT_xstream xstream, ABT_bool* is_primary) {
    if (xstream == nullptr) return ABT_ERR_INV_XSTREAM;
    *is_primary = xstream->primary;
    return ABT_SUCCESS;
}

int ABT_xstream_run_unit(ABT_unit unit, ABT_pool pool) {
    if (!initialized()) return ABT_ERR_UNINITIALIZED;
    ABT_thread_opaque* const who = thread_of(unit);
    if (who == nullptr) return ABT_ERR_INV_UNIT;
    if (pool == nullptr) return ABT_ERR_INV_POOL;
    return ABT_self_schedule(who, pool);
}

int ABT_xstream_check_events(ABT_sched sched) {
    if (sched == nullptr) return ABT_ERR_INV_SCHED;
    ABT_thread_opaque* const who = self();
    if (who == nullptr) return ABT_ERR_INV_XSTREAM;
    // A main scheduler goes on at once: its stream's timers had their turn.
    if (who->kind == thread_kind::scheduler && who == sched->thread && !sched->in_pool)
        yield_as(*who, ABT_POOL_CONTEXT_OP_THREAD_YIELD);
    return ABT_SUCCESS;
}
