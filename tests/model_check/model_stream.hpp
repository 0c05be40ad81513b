#pragma once

#include "model_check/stand_ins.hpp"
#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/dispatch/registry.hpp"

namespace amalgam::model {

/// A stream that serves its own pool: the library's dispatcher, known to ult_registry. Programs do
/// what its loop would, and what code on the stacks of ULTs would; stacks are not switched.
struct model_stream {
    /// One at a time.
    model_stream() : here(reinterpret_cast<detail::stream&>(*this), false) {
        here.work_.own_order_ = true;
        here.work_.begin_batch(1000);
        pool().attach(here, bell, true, true);
        known() = &here;
    }
    ~model_stream() { pool().detach(here); }
    model_stream(const model_stream&) = delete;
    model_stream& operator=(const model_stream&) = delete;

    fifo_pool& pool() noexcept { return here.work_.own_pool(); }

    /// The next unit that is ready.
    work_unit& next() {
        for (;;) {
            if (work_unit* const ready = here.work_.pick()) return *ready;
            sleep();
        }
    }
    /// As stream_loop::sleep().
    void sleep() {
        bell.asleep.store(true, std::memory_order_seq_cst);
        if (pool().empty()) bell.wakes.wait();
        bell.asleep.store(false, std::memory_order_relaxed);
    }

    model_bell bell;
    detail::dispatcher here;

private:
    /// The registry's place for it, which is made before the first execution: its memory is of
    /// none.
    static detail::dispatcher*& known() noexcept {
        return const_cast<detail::dispatcher*&>(detail::ult_registry::streams_locked()[0]);
    }
    static inline const bool has_place_ = [] {
        static detail::dispatcher nobody(reinterpret_cast<detail::stream&>(nobody), false);
        detail::ult_registry::add(nobody);
        return true;
    }();
};

}  // namespace amalgam::model
