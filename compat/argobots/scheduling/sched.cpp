#include <algorithm>

#include "callback.hpp"
#include "config.hpp"
#include "runtime.hpp"

using namespace amalgam::argobots;

namespace amalgam::argobots {

namespace {

/// A scheduler that may still fail: then pools go back to their owners, and those made here end.
class unfinished {
public:
    unfinished() : made_(std::make_unique<ABT_sched_opaque>()) {}
    ~unfinished() {
        if (made_ == nullptr) return;
        for (ABT_pool each : made_->pools)
            each->schedulers.fetch_sub(1);
        for (ABT_pool each : own_)
            delete each;
    }
    unfinished(const unfinished&) = delete;
    unfinished& operator=(const unfinished&) = delete;

    /// Null ones are made.
    void give_pools(std::size_t number, const ABT_pool* given) {
        own_.reserve(number);
        made_->pools.reserve(number);
        for (std::size_t i = 0; i < number; ++i) {
            ABT_pool pool = given == nullptr ? nullptr : given[i];
            if (pool == nullptr) {
                pool = new own_pool(ABT_POOL_FIFO, ABT_POOL_ACCESS_MPMC, true);
                own_.push_back(pool);
            }
            made_->pools.push_back(pool);
            pool->schedulers.fetch_add(1);
        }
        made_->order = made_->pools;
    }
    ABT_sched_opaque* operator->() const noexcept { return made_.get(); }
    ABT_sched get() const noexcept { return made_.get(); }
    ABT_sched release() noexcept { return made_.release(); }

private:
    std::unique_ptr<ABT_sched_opaque> made_;
    std::vector<ABT_pool> own_;
};

/// It may sleep, as it does without work.
void wake_stream_of(const ABT_sched_opaque& sched) noexcept {
    if (sched.main_of != nullptr) sched.main_of->wake();
}

/// Basic schedulers of Argobots look at pools of few streams first.
int sharing(const ABT_pool_opaque& pool) noexcept {
    switch (pool.access_kind) {
        case ABT_POOL_ACCESS_PRIV:
            return 0;
        case ABT_POOL_ACCESS_SPSC:
        case ABT_POOL_ACCESS_MPSC:
            return 1;
        default:
            return 2;
    }
}

}  // namespace

ABT_sched_opaque& create_sched(ABT_sched_predef kind, std::size_t pools, const ABT_pool* given,
                               ABT_sched_config config) {
    if (kind < ABT_SCHED_DEFAULT || kind > ABT_SCHED_BASIC_WAIT)
        throw failure{ABT_ERR_INV_SCHED_PREDEF};
    unfinished made;
    made->kind = kind == ABT_SCHED_DEFAULT ? ABT_SCHED_BASIC : kind;
    made->automatic = true;
    if (config != nullptr)
        made->automatic = config->all.int_or(ABT_sched_config_automatic.idx, 1) != 0;
    constexpr std::size_t priorities = 3;
    if (pools == 0) pools = kind == ABT_SCHED_PRIO ? priorities : 1;
    made.give_pools(pools, given);
    if (made->kind == ABT_SCHED_BASIC || made->kind == ABT_SCHED_BASIC_WAIT) {
        std::stable_sort(made->order.begin(), made->order.end(), [](ABT_pool one, ABT_pool other) {
            return sharing(*one) < sharing(*other);
        });
    }
    return *made.release();
}

void free_sched(ABT_sched_opaque& which) noexcept {
    runtime::wait_until_let_go(which.holders);
    if (which.functions.free != nullptr)
        called("an exception escaped from free() of a scheduler",
               [&] { which.functions.free(&which); });
    for (ABT_pool each : which.pools) {
        if (each->schedulers.fetch_sub(1) == 1 && each->automatic) delete each;
    }
    delete &which;
}

}  // namespace amalgam::argobots

int ABT_sched_create(ABT_sched_def* def, int num_pools, ABT_pool* pools, ABT_sched_config config,
                     ABT_sched* newsched) {
    *newsched = nullptr;
    if (!initialized()) return ABT_ERR_UNINITIALIZED;
    if (def == nullptr || def->run == nullptr || num_pools < 0) return ABT_ERR_INV_ARG;
    return guarded([=] {
        unfinished made;
        made->functions = *def;
        if (config != nullptr)
            made->automatic = config->all.int_or(ABT_sched_config_automatic.idx, 0) != 0;
        made.give_pools(num_pools == 0 ? 1 : static_cast<std::size_t>(num_pools), pools);
        int error = ABT_SUCCESS;
        if (def->init != nullptr &&
            !called_in_ult("an exception escaped from init() of a scheduler",
                           [&] { error = def->init(made.get(), config); }))
            error = ABT_ERR_OTHER;
        if (error != ABT_SUCCESS) return error;
        *newsched = made.release();
        return ABT_SUCCESS;
    });
}

int ABT_sched_create_basic(ABT_sched_predef predef, int num_pools, ABT_pool* pools,
                           ABT_sched_config config, ABT_sched* newsched) {
    *newsched = nullptr;
    if (!initialized()) return ABT_ERR_UNINITIALIZED;
    if (num_pools < 0) return ABT_ERR_INV_ARG;
    return guarded([=] {
        *newsched = &create_sched(predef, static_cast<std::size_t>(num_pools), pools, config);
        return ABT_SUCCESS;
    });
}

int ABT_sched_free(ABT_sched* sched) {
    if (*sched == nullptr) return ABT_ERR_INV_SCHED;
    if ((*sched)->used()) return ABT_ERR_SCHED;
    free_sched(**sched);
    *sched = nullptr;
    return ABT_SUCCESS;
}

int ABT_sched_set_data(ABT_sched sched, void* data) {
    if (sched == nullptr) return ABT_ERR_INV_SCHED;
    sched->data = data;
    return ABT_SUCCESS;
}

int ABT_sched_get_data(ABT_sched sched, void** data) {
    if (sched == nullptr) return ABT_ERR_INV_SCHED;
    *data = sched->data;
    return ABT_SUCCESS;
}

int ABT_sched_get_num_pools(ABT_sched sched, int* num_pools) {
    if (sched == nullptr) return ABT_ERR_INV_SCHED;
    *num_pools = static_cast<int>(sched->pools.size());
    return ABT_SUCCESS;
}

int ABT_sched_get_pools(ABT_sched sched, int max_pools, int idx, ABT_pool* pools) {
    if (sched == nullptr) return ABT_ERR_INV_SCHED;
    const int number = static_cast<int>(sched->pools.size());
    if (idx < 0 || idx > number) return ABT_ERR_INV_ARG;
    for (int i = 0; i < max_pools && idx + i < number; ++i)
        pools[i] = sched->pools[static_cast<std::size_t>(idx + i)];
    return ABT_SUCCESS;
}

int ABT_sched_get_size(ABT_sched sched, size_t* size) {
    if (sched == nullptr) return ABT_ERR_INV_SCHED;
    *size = 0;
    for (const ABT_pool_opaque* each : sched->pools)
        *size += each->size();
    return ABT_SUCCESS;
}

int ABT_sched_get_total_size(ABT_sched sched, size_t* size) {
    if (sched == nullptr) return ABT_ERR_INV_SCHED;
    *size = 0;
    for (const ABT_pool_opaque* each : sched->pools)
        *size += each->total();
    return ABT_SUCCESS;
}

int ABT_sched_finish(ABT_sched sched) {
    if (sched == nullptr) return ABT_ERR_INV_SCHED;
    sched->finish_asked = true;
    wake_stream_of(*sched);
    return ABT_SUCCESS;
}

int ABT_sched_exit(ABT_sched sched) {
    if (sched == nullptr) return ABT_ERR_INV_SCHED;
    sched->exit_asked = true;
    wake_stream_of(*sched);
    return ABT_SUCCESS;
}

int ABT_sched_has_to_stop(ABT_sched sched, ABT_bool* stop) {
    *stop = ABT_FALSE;
    if (sched == nullptr) return ABT_ERR_INV_SCHED;
    if (self() == nullptr) return ABT_ERR_INV_XSTREAM;
    *stop = sched->has_to_stop();
    return ABT_SUCCESS;
}
