#include <chrono>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include <amalgam/flow/detail/fastflow_end.hpp>
#include <amalgam/rpc/call_context.hpp>

#include "flow/fastflow/wire.hpp"

namespace amalgam::detail {

fastflow_end::fastflow_end(endpoints where, fastflow_options options)
    : options_(std::move(options)), engine_(std::move(where), options_.engine) {}

void fastflow_end::listen() {
    told_ = engine_.on_peer_lost([this](const peer& who, status why) { lose(who, why); });
    engine_.define(library_name{fastflow_wire::failed},
                   [this](std::string why) { hear_failure(why); });
}

void fastflow_end::close() {
    {
        const std::lock_guard hold(lock_);
        done_ = true;
        wake_all();
    }
    if (last_words_.joinable()) last_words_.join();  // No other can start any more.
    refuse("it was destroyed before the end of the stream");
    stop();
}

void fastflow_end::stop() {
    // ULTs waiting for the lock must finish before the stream ends.
    end_ults();
    told_.end();
    engine_.stop();
}

std::optional<failure> fastflow_end::failed() const {
    const std::lock_guard hold(lock_);
    return failed_;
}

void fastflow_end::fail(failure why) {
    const std::lock_guard hold(lock_);
    if (failed_ || done_ || ended_) return;
    failed_ = std::move(why);
    wake_all();
    // On another thread: the engine cannot be stopped from inside, and the caller may be needed.
    last_words_ = std::thread([this] { say_why(); });
}

void fastflow_end::say_why() {
    const failure why = *failed();
    tell_far_ends(why.sentence);
    refuse(why.sentence);
    stop();
    if (options_.on_failure) options_.on_failure(why);
    const std::lock_guard hold(lock_);
    said_ = true;
    wake_all();
}

void fastflow_end::tell_far_ends(const std::string& why) {
    std::vector<peer> all;
    {
        const std::lock_guard hold(lock_);
        for (const far_end* each : far_ends_)
            if (each->who && !each->ended) all.push_back(each->who);
    }
    const auto failed = engine_.procedure<fastflow_wire::failed_signature>(fastflow_wire::failed);
    std::vector<future<void>> told;
    try {
        for (const peer& one : all)
            told.push_back(failed.on(one).within(std::chrono::seconds(1)).start(why));
    } catch (const error&) {  // They will notice when this end is gone.
    }
    for (future<void>& one : told)
        (void)one.wait();
}

void fastflow_end::wait_for_last_words() {
    std::unique_lock hold(lock_);
    changed_.wait(hold, [this] { return !failed_ || said_; });
}

const fastflow_end::far_end* fastflow_end::find(const peer& who) const noexcept {
    for (const far_end* each : far_ends_)
        if (each->who == who) return each;
    return nullptr;
}

void fastflow_end::hear_failure(const std::string& why) {
    std::string name = "the other end";  // It may fail before its answer to `join` arrives.
    {
        const std::lock_guard hold(lock_);
        if (const far_end* it = find(call_context::current().from())) name = it->name;
    }
    fail({{errc::handler_failed}, fmt::format("{} failed: {}", name, why)});
}

void fastflow_end::lose(const peer& who, status why) {
    failure loss;
    {
        const std::lock_guard hold(lock_);
        const far_end* gone = find(who);
        if (gone == nullptr || gone->ended) return;
        loss = loss_of(*gone, why);
    }
    fail(std::move(loss));
}

failure fastflow_end::loss_of(const far_end& gone, status why) {
    return {why, fmt::format("lost contact with {} before the end of the stream ({}); see its last "
                             "output, then start all groups again",
                             gone.name, name(why.code))};
}

}  // namespace amalgam::detail
