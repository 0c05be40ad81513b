#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include <amalgam/core/result.hpp>
#include <amalgam/fabric/completion.hpp>
#include <amalgam/fabric/message.hpp>
#include <amalgam/rpc/archive.hpp>
#include <amalgam/rpc/body.hpp>
#include <amalgam/rpc/detail/loans.hpp>
#include <amalgam/rpc/detail/thrown.hpp>
#include <amalgam/rpc/peer.hpp>
#include <amalgam/rpc/trace_context.hpp>
#include <amalgam/tasks/future.hpp>
#include <amalgam/tasks/parking.hpp>
#include <amalgam/tasks/timer.hpp>
#include <amalgam/tasks/work_unit.hpp>

/// What stands behind a typed call: the part that does not know the types, and the two thin
/// skins that do (a call somebody waits for, a call behind a future).
namespace amalgam {
class call_context;
}

namespace amalgam::detail {

class engine_core;
class caller;
struct peer_state;

/// A procedure as callers name it. One per name and signature and engine, at a fixed address.
struct remote_procedure {
    std::uint64_t id = 0;
    std::uint32_t index = 0;  ///< Counts up from 0 within the engine.
    std::string name;
    std::string signature;
    std::string wire_text;  ///< Both, as the first request to a peer carries them.
    bool library = false;   ///< See is_library_procedure().
};

/// A message on its way to a peer: at the port, or in the peer's queue behind a full port.
struct outgoing : completion {
    enum class at : std::uint8_t { nowhere, queue, port };

    explicit outgoing(function on_sent) noexcept : completion(on_sent) {}

    amalgam::peer to;
    std::uint64_t tag = 0;
    std::array<const_bytes, 5> pieces{};
    std::uint8_t piece_count = 0;
    at where = at::nowhere;
    bool is_answer = false;          ///< While it is queued it counts as not read.
    bool urgent = false;             ///< Queued in front of those that are not.
    peer_state* queue_of = nullptr;  // Of the queue, as are:
    outgoing* previous = nullptr;
    outgoing* next = nullptr;
};

class call_record;

struct deadline_timer : timer {
    using timer::timer;
    call_record* call = nullptr;
};

/// Where a call is to go, until when it may take, and what else is asked of it.
struct call_target {
    engine_core* core = nullptr;
    const remote_procedure* what = nullptr;
    amalgam::peer to;
    std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max();
    std::chrono::nanoseconds pause{0};  ///< Before the second attempt; then twice as long.
    std::uint16_t attempts = 1;
    std::uint16_t provider = 0;
    bool urgent = false;
    bool idempotent = false;
    std::uint32_t window = 64;  ///< Of a stream: values sent and not yet read, at most.
    encoding as = encoding::native;
    std::optional<trace_context> trace{};
};

struct call_extras;
struct drop_extras {
    void operator()(call_extras* which) const noexcept;
};

/// One call from its arguments to its outcome, without its types.
///
/// Owner:   who made it; stays where it is from submit() until over().
/// Threads: the maker's until submit(), the engine's stream until over(), then the maker's.
class call_record : public outgoing {
public:
    explicit call_record(const call_target& target);
    virtual ~call_record() = default;

    template <typename... T>
    void write(const T&... values) {
        const origin between{core_, to, &loans_, nullptr};
        archive_writer(arguments, target_->as, &between)(values...);
    }

    body arguments;
    std::uint32_t window = 0;  ///< Not 0: it is a stream_call.
    failure why;               ///< How it ended; ok with a value.

protected:
    /// Hands the call to the engine; over() runs exactly once, here or on the engine's stream.
    void submit() noexcept;
    /// The same once few enough messages to its peer wait for room: parks until then. Where nobody
    /// can wait it ends as `overloaded`.
    void submit_in_turn() noexcept;
    /// Asks for an early end. Any thread; until over(). The record must stay until release().
    void request_cancel() noexcept;
    [[noreturn]] void raise() const;
    std::string_view procedure_name() const noexcept { return what_->name; }

    /// Reads the result. May throw what the result's type throws.
    virtual void decode(archive_reader& from) = 0;
    /// The call has ended: `why` is set. The record is the maker's again, and may be gone.
    virtual void over() noexcept = 0;
    /// The engine is done with a request_cancel().
    virtual void release() noexcept {}

    engine_core* core_;

private:
    friend class caller;
    /// This call, for another thread to hand to the engine's stream.
    struct errand : work_unit {
        errand(run_function what, call_record& whose) noexcept : work_unit(what), call(whose) {}
        call_record& call;
    };

    friend class result_fetch;
    void dress(const call_context* serving);
    void show_arguments();
    void refuse(const failure& wrong) noexcept;
    static void on_sent(completion& self, status what, std::size_t bytes) noexcept;
    static void run_submit(work_unit& self) noexcept;
    static void run_cancel(work_unit& self) noexcept;

    const remote_procedure* what_;
    peer_state* callee_ = nullptr;  // While id_ is set.
    clock::time_point deadline_ = clock::time_point::max();
    const call_target* target_;  // Until submit() returns.
    std::unique_ptr<call_extras, drop_extras> extras_;
    std::uint16_t provider_;
    lent_list loans_;
    call_record* previous_pending_ = nullptr;  // Of the same peer.
    call_record* next_pending_ = nullptr;
    std::uint64_t id_ = 0;          // Slot and generation while a reply may come; else 0.
    bool naming_ = false;           // The request carries name and signature.
    bool xdr_;                      // As are the arguments.
    bool checked_ = false;          // The request carries a checksum.
    bool canceled_early_ = false;   // Before it was submitted.
    bool ended_ = false;            // The outcome is known; over() waits for the port to let go.
    bool pausing_ = false;          // Between two attempts.
    std::optional<errand> submit_;  // Only where another thread calls,
    std::optional<errand> cancel_;  // or cancels.
    std::optional<deadline_timer> timer_;
    std::array<std::byte, 4> checksum_;
};

/// A call that its maker waits for, parked.
class waited_call : public call_record {
protected:
    using call_record::call_record;
    /// Submits, and returns when the call is over.
    void wait();

private:
    void over() noexcept final { who_.unpark(); }
    waiter who_;
};

template <typename R>
using stored = std::conditional_t<std::is_void_v<R>, std::monostate, R>;

template <typename R>
class blocking_call final : public waited_call {
public:
    using waited_call::waited_call;

    R run() {
        wait();
        if (!why.what.ok()) raise();
        if constexpr (!std::is_void_v<R>) return std::move(*value_);
    }
    result<R> try_run() {
        wait();
        if (!why.what.ok()) return std::move(why);
        if constexpr (std::is_void_v<R>) {
            return {};
        } else {
            return std::move(*value_);
        }
    }

private:
    void decode(archive_reader& from) override { emplace_new(value_, from); }
    std::optional<stored<R>> value_;
};

/// A call that tells a function how it ended. Deletes itself.
template <typename R, typename Function>
class told_call final : public call_record {
public:
    told_call(const call_target& target, Function then)
        : call_record(target), then_(std::move(then)) {}

    /// Precondition: made by new, arguments are in place. Takes the object over.
    void launch() noexcept { submit_in_turn(); }

    // Recycled, as the states of futures are.
    static void* operator new(std::size_t bytes) { return allocate_block(bytes); }
    static void operator delete(void* memory, std::size_t bytes) noexcept {
        free_block(memory, bytes);
    }

private:
    void decode(archive_reader& from) override { emplace_new(value_, from); }
    void over() noexcept override {
        try {
            then_(outcome());
        } catch (...) {
            log_thrown("a function of call_then()", procedure_name());
        }
        delete this;
    }
    result<R> outcome() {
        if (!why.what.ok()) return std::move(why);
        if constexpr (std::is_void_v<R>) {
            return {};
        } else {
            try {
                return std::move(*value_);
            } catch (...) {
                return thrown_here("moving the result", errc::mismatch);
            }
        }
    }

    Function then_;
    std::optional<stored<R>> value_;
};

/// Keeps the engine's inside alive while a future may still ask it to cancel.
class core_reference {
public:
    explicit core_reference(engine_core& core) noexcept;
    core_reference(const core_reference&) = delete;
    core_reference& operator=(const core_reference&) = delete;
    ~core_reference();

private:
    engine_core& kept_alive_;
};

/// A call behind a future: the future's state and the call are one object, from the pool
/// that future states come from.
template <typename R>
class future_call final : public future_state<R>, private core_reference, public call_record {
public:
    explicit future_call(const call_target& target)
        : core_reference(*target.core), call_record(target) {}

    /// Precondition: made by new, arguments are in place. Takes the object over.
    future<R> launch() noexcept {
        this->on_abandon(&cancel_it, this);
        this->add_reference();  // The future's; ours goes in over().
        future<R> later(*this);
        submit_in_turn();
        return later;
    }

private:
    static void cancel_it(void* context) noexcept {
        auto& self = *static_cast<future_call*>(context);
        self.add_reference();  // Until release().
        self.request_cancel();
    }
    void decode(archive_reader& from) override { emplace_new(value_, from); }
    void over() noexcept override {
        if (!why.what.ok()) {
            this->fail(std::move(why));
        } else if constexpr (std::is_void_v<R>) {
            this->set();
        } else {
            try {
                this->set(std::move(*value_));
            } catch (...) {
                this->fail(thrown_here("moving the result", errc::mismatch));
            }
        }
        this->drop_reference();
    }
    void release() noexcept override { this->drop_reference(); }

    std::optional<stored<R>> value_;
};

}  // namespace amalgam::detail
