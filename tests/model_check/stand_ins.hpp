#pragma once

#include <amalgam/tasks/fifo_pool.hpp>

#include "model_check/checker/checker.hpp"
#include "tasks/idle/bell.hpp"

/// What programs use in place of parts of the library that are not to be checked, or cannot be: see
/// stand_ins.cpp, too.
namespace amalgam::model {

/// A bell whose descriptor is one of the model.
struct model_bell : detail::bell {
    wake_up wakes;
};

/// A pool, and what stands for the stream that serves it.
struct served_pool {
    served_pool() { pool.attach(stream(), bell, true, true); }
    ~served_pool() { pool.detach(stream()); }
    /// Only its address is used.
    detail::dispatcher& stream() { return reinterpret_cast<detail::dispatcher&>(*this); }

    /// As stream_loop::sleep().
    void sleep() {
        bell.asleep.store(true, std::memory_order_seq_cst);
        if (pool.empty()) bell.wakes.wait();
        bell.asleep.store(false, std::memory_order_relaxed);
    }

    model_bell bell;
    fifo_pool pool;
};

/// While one lives, barrier_on_all_threads() is none.
class no_barriers {
public:
    no_barriers() noexcept { are_left_out_ = true; }
    ~no_barriers() { are_left_out_ = false; }
    no_barriers(const no_barriers&) = delete;
    no_barriers& operator=(const no_barriers&) = delete;

    static bool are_left_out() noexcept { return are_left_out_; }

private:
    inline static bool are_left_out_ = false;
};

}  // namespace amalgam::model
