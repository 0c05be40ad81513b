#include <utility>

#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/extension/deadline.hpp>
#include <amalgam/tasks/timer.hpp>

#include "tasks/streams/stream.hpp"

namespace amalgam {

static std::unique_ptr<scheduler> not_null(std::unique_ptr<scheduler> order) {
    detail::refuse_null(order);
    return order;
}

execution_stream::execution_stream(execution_stream_options options)
    : impl_(std::make_unique<detail::stream>(*this, nullptr, std::move(options))) {}

execution_stream::execution_stream(std::unique_ptr<scheduler> order,
                                   execution_stream_options options)
    : impl_(std::make_unique<detail::stream>(*this, not_null(std::move(order)),
                                             std::move(options))) {}

execution_stream::~execution_stream() {
    // Belongs to the parent of a fork: this process must not end its thread or descriptors.
    if (impl_->forked()) {
        static_cast<void>(impl_.release());
    } else if (detail::stream::current() == impl_.get() && !impl_->options().primary) {
        // It is below us on this thread, for example if a ULT calls exit() and the stream is
        // static.
        impl_.release()->stay();
    }
}

// Not inlined: see dispatcher::current().
[[gnu::noinline]] execution_stream* execution_stream::current() noexcept {
    asm volatile("");
    const detail::dispatcher* const here = detail::dispatcher::current_in_line();
    return here == nullptr ? nullptr : &here->of().owner();
}

pool& execution_stream::main_pool() noexcept {
    return impl_->runs().work().main_pool();
}
std::string_view execution_stream::name() const noexcept {
    return impl_->options().name;
}
bool execution_stream::driven() const noexcept {
    return impl_->options().driven;
}
execution_stream::time_point execution_stream::now() const noexcept {
    return impl_->loop().now();
}
int execution_stream::rank() const noexcept {
    return impl_->rank();
}
void execution_stream::set_rank(int rank) {
    impl_->set_rank(rank);
}
stream_state execution_stream::state() const noexcept {
    return impl_->state();
}
cpu_set execution_stream::cpus() const {
    return impl_->cpus();
}
void execution_stream::set_cpus(const cpu_set& cpus) {
    impl_->set_cpus(cpus);
}
void execution_stream::revive() {
    impl_->revive();
}
void execution_stream::set_scheduler(std::unique_ptr<scheduler> order) {
    impl_->replace_scheduler(std::move(order));
}
void execution_stream::add_poller(poller& what) {
    impl_->refuse_forked();
    impl_->loop().add_poller(what);
}
void execution_stream::remove_poller(poller& what) {
    if (!impl_->forked()) impl_->loop().remove_poller(what);
}
void execution_stream::wake() noexcept {
    impl_->loop().wake();
}
std::size_t execution_stream::run_ready(std::size_t most) {
    return impl_->run_ready(most);
}
int execution_stream::wait_handle() const {
    return impl_->loop().wait_handle();
}
void execution_stream::set_spin(std::chrono::nanoseconds time) noexcept {
    impl_->loop().set_spin(time);
}
void execution_stream::stop() {
    impl_->stop();
}
bool execution_stream::stop_within(std::chrono::nanoseconds limit) {
    return impl_->stop_within(limit);
}
std::chrono::nanoseconds execution_stream::cpu_time() const noexcept {
    return impl_->cpu_time();
}

std::optional<execution_stream::time_point> execution_stream::next_timer() const noexcept {
    const time_point when = impl_->loop().timers().earliest();
    if (when == time_point::max()) return std::nullopt;
    return when;
}

timer::timer(execution_stream& where, callback on_time) noexcept : timer(where, on_time, nullptr) {}

timer::timer(execution_stream& where, callback on_time, pool_of wakes_in) noexcept
    : timer(where.impl_->loop().timers(), on_time, wakes_in) {}

std::chrono::steady_clock::time_point detail::task_now() noexcept {
    stream* const here = stream::current();
    return here == nullptr ? std::chrono::steady_clock::now() : here->loop().now();
}

}  // namespace amalgam
