#include "tasks/streams/primary.hpp"

#include <chrono>

#include <fmt/format.h>
#include <pthread.h>

#include <amalgam/core/log.hpp>
#include <amalgam/core/status.hpp>

#include "tasks/ult/registry.hpp"

namespace amalgam::detail {

namespace {
constexpr std::size_t loop_stack_bytes = 256 * 1024;  // for tasklets, timers and pollers
}

stream::primary::primary(stream& of)
    : main(ult_core::of_thread(), of.options_.name),
      of_(of),
      loop_stack_(map_stack(loop_stack_bytes)) {
    ::pthread_getaffinity_np(::pthread_self(), sizeof cores_before_, &cores_before_);
    of.bind_to_cpu();
    turn_.emplace(of);
    const auto usable = static_cast<std::size_t>(loop_stack_.top() - loop_stack_.bottom());
    main.saved.sanitizer.adopt_thread();
    main.saved.stack.floats = float_control::now();
    of.loop_.sanitizer.create(loop_stack_.bottom(), usable);
    of.loop_.stack = make_stack<&stream::loop_main>(loop_stack_.top(), usable);
    main.begin_in(of.own_pool_);
    ult_registry::add(main);
    of.running_.store(&main, std::memory_order_release);
}

stream::primary::~primary() {
    of_.running_.store(nullptr, std::memory_order_release);
    ult_registry::remove(main);
    of_.loop_.sanitizer.destroy();
    turn_.reset();
    unmap_stack(loop_stack_);
    ::pthread_setaffinity_np(::pthread_self(), sizeof cores_before_, &cores_before_);
}

void stream::check_primary() const {
    if (!options_.primary) return;
    if (options_.driven) {
        throw error(errc::invalid,
                    fmt::format("stream '{}' cannot be both primary and driven: a primary stream "
                                "owns the calling thread, a driven one runs only in run_ready()",
                                options_.name));
    }
    if (const stream* const here = current()) {
        throw error(errc::invalid,
                    fmt::format("stream '{}' cannot be primary: the calling thread already runs "
                                "stream '{}'; create it on a plain thread, such as main()",
                                options_.name, here->options_.name));
    }
}

bool stream::is_of_primary(const ult_core& who) const noexcept {
    return &primary_->main == &who;
}

void stream::stop_primary() {
    if (primary_ == nullptr) return;
    if (current() != this || running() != &primary_->main) {
        throw error(errc::invalid,
                    fmt::format("the primary stream '{}' can only be stopped or destroyed by the "
                                "thread that created it, outside of other ULTs",
                                options_.name));
    }
    stopping_.store(true, std::memory_order_seq_cst);
    prepare_to_detach();
    while (has_work_of_its_own() && run_one_of_all() && may_go_on_stopping())
        continue;
    hand_over();
    replace_if_asked();
    end_stacked();
    detach_all();
    primary_.reset();
    timers_->close();
}

// Its own pool always regains this ULT, so the loop never finds a stacked scheduler without work. A
// unit from one of the schedulers goes to the own pool, from which each of them runs it next.
// False: nothing is ready.
bool stream::run_one_of_all() noexcept {
    bool any = !own_pool_.empty();
    for (std::size_t i = orders_.size(); !any && i-- > 0;) {
        if (work_unit* const unit = orders_[i].order->next()) {
            own_pool_.push_own(*unit);
            any = true;
        }
    }
    if (any) leave_to_yield();
    return any;
}

}  // namespace amalgam::detail
