#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/rpc/archive.hpp>
#include <amalgam/rpc/archive_context.hpp>
#include <amalgam/rpc/body.hpp>
#include <amalgam/rpc/detail/flat_values.hpp>
#include <amalgam/rpc/extension/core_reference.hpp>
#include <amalgam/rpc/extension/loans.hpp>
#include <amalgam/rpc/extension/thrown.hpp>
#include <amalgam/rpc/peer.hpp>
#include <amalgam/rpc/trace_context.hpp>
#include <amalgam/tasks/future.hpp>
#include <amalgam/tasks/parking.hpp>

/// The type-erased core of a typed call, and two thin typed layers over it: a call waited for, and
/// a call behind a future.
namespace amalgam {
class call_context;
}

namespace amalgam::detail {

class engine_core;
class caller;
struct pending_call;
struct task_place;

/// A procedure as named by callers. One per name, signature and engine, at a fixed address.
struct remote_procedure {
    std::uint64_t id = 0;
    std::uint32_t index = 0;  ///< Assigned in sequence within the engine, from 0.
    std::string name;
    std::string signature;
    std::string wire_text;  ///< Name and signature, as sent in the first request to a peer.
    bool library = false;   ///< See is_library_procedure().
};

/// Target, deadline and other settings of a call.
struct call_target {
    engine_core* core = nullptr;
    const remote_procedure* what = nullptr;
    amalgam::peer to;
    std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max();
    std::chrono::nanoseconds pause{0};  ///< Before the second attempt; doubles each time.
    std::uint16_t attempts = 1;
    std::uint16_t provider = 0;
    bool urgent = false;
    bool idempotent = false;
    std::uint32_t window = 64;  ///< Of a stream: maximum values sent and not yet read.
    encoding as = encoding::native;
    std::optional<trace_context> trace{};
    archive_context context{};  ///< Seen by serializers; empty: the engine's.
    bool dressed = false;       ///< With a trace or a context: its calls have extras.
};

/// One call from its arguments to its outcome, type-erased.
///
/// Owner:   its maker; does not move between submit() and over().
/// Threads: the maker's until submit(), the engine's stream until over(), then the maker's.
class call_record {
public:
    explicit call_record(const call_target& target);
    call_record(const call_record&) = delete;
    call_record& operator=(const call_record&) = delete;
    virtual ~call_record();

    template <typename... T>
    void write(const T&... values) {
        const origin between{core_, target_->to, &loans_, nullptr, &target_->context};
        archive_writer(arguments, target_->as, &between)(values...);
    }

    body arguments;
    std::uint32_t window = 0;  ///< Nonzero for a stream_call.
    failure why;               ///< The outcome; ok with a value.

protected:
    /// Hands the call to the engine; over() runs exactly once, here or on the engine's stream.
    void submit() noexcept;
    void submit(const task_place& here) noexcept;
    /// The same, but first parks while too many messages to the peer are queued. Ends as
    /// `overloaded` where the caller cannot wait.
    void submit_in_turn() noexcept;
    /// Requests cancellation. Any thread, until over(). The record must stay alive until release().
    void request_cancel() noexcept;
    [[noreturn]] void raise() const;
    std::string_view procedure_name() const noexcept;

    /// Reads the result. May throw whatever the result's type throws.
    virtual void decode(archive_reader& from) = 0;
    /// The same for a number in the native encoding. False: it is none, or of another size.
    // Cold, or GCC asks first at each call whether it is this one.
    [[gnu::cold]] virtual bool decode_flat(const_bytes) noexcept { return false; }
    /// The call has ended and `why` is set. The record belongs to its maker again, and may be
    /// destroyed.
    virtual void over() noexcept = 0;
    /// The engine has finished with a request_cancel().
    virtual void release() noexcept {}

    pending_call& pending() noexcept;
    const pending_call& pending() const noexcept;

    engine_core* core_;

private:
    friend class caller;
    friend struct pending_call;

    bool submit_plain(const task_place& here) noexcept;
    bool begin_plain(detail::caller& by, const call_context* serving) noexcept;
    void submit_after_others() noexcept;
    void submit_any() noexcept;

    void end_rare() noexcept;

    const call_target* target_;  // Until submit() returns.
    union {
        lent_list loans_;  // Ended only if it has memory, which is rare.
    };
    // The engine's view of the call, a pending_call. In place, so that a call on its caller's stack
    // allocates nothing.
    static constexpr std::size_t pending_bytes = 496;
    alignas(8) std::byte pending_[pending_bytes];
};

/// A call whose maker parks until it ends.
class waited_call : public call_record {
public:
    /// Where its maker waits, for comparison only; null: not yet.
    const void* waiter_seen() const noexcept { return who_; }

protected:
    using call_record::call_record;
    /// Submits, and returns when the call is over.
    void wait();

private:
    void wait_outside_ults(const task_place& here);
    void wait_by(waiter& who, const task_place& here);
    void over() noexcept final { who_->unpark(); }
    waiter* who_ = nullptr;
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
    bool decode_flat(const_bytes from) noexcept override {
        return load_flat_result<R>(value_, from);
    }
    std::optional<stored<R>> value_;
};

/// A call that passes its outcome to a function. Deletes itself.
template <typename R, typename Function>
class told_call final : public call_record {
public:
    told_call(const call_target& target, Function then)
        : call_record(target), then_(std::move(then)) {}

    /// Precondition: made with new, arguments written. Takes ownership.
    void launch() noexcept { submit_in_turn(); }

    // Recycled, like the states of futures.
    static void* operator new(std::size_t bytes) { return allocate_block(bytes); }
    static void operator delete(void* memory, std::size_t bytes) noexcept {
        free_block(memory, bytes);
    }
    static void* operator new(std::size_t bytes, std::align_val_t to) {
        return ::operator new(bytes, to);
    }
    static void operator delete(void* memory, std::align_val_t to) noexcept {
        ::operator delete(memory, to);
    }

private:
    void decode(archive_reader& from) override { emplace_new(value_, from); }
    bool decode_flat(const_bytes from) noexcept override {
        return load_flat_result<R>(value_, from);
    }
    void over() noexcept override {
        try {
            then_(outcome());
        } catch (...) {
            log_thrown("the continuation of call_then()", procedure_name());
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

/// A call behind a future. The future's state and the call are one object, from the pool of future
/// states.
template <typename R>
class future_call : public future_state<R>, private core_reference, public call_record {
public:
    explicit future_call(const call_target& target)
        : core_reference(*target.core), call_record(target) {}

    /// Precondition: made with new, arguments written. Takes ownership.
    future<R> launch() noexcept {
        this->on_abandon(&cancel_it, this);
        this->add_reference();  // The future's reference; ours is dropped in over().
        future<R> later(*this);
        submit_in_turn();
        return later;
    }

protected:
    void over() noexcept override {
        if (!why.what.ok()) [[unlikely]] {
            end_failed();
        } else {
            this->complete();
        }
        this->drop_reference();
    }
    /// The future asks to cancel. At most once.
    virtual void abandoned() noexcept {
        this->add_reference();  // Until release().
        this->request_cancel();
    }

private:
    static void cancel_it(void* context) noexcept {
        static_cast<future_call*>(context)->abandoned();
    }
    // Out of line, so that over() saves no registers for it.
    [[gnu::noinline]] void end_failed() noexcept { this->fail(std::move(why)); }
    // Where the future finds it.
    void decode(archive_reader& from) override { emplace_new(this->place(), from); }
    bool decode_flat(const_bytes from) noexcept override {
        return load_flat_result<R>(this->place(), from);
    }
    void release() noexcept override { this->drop_reference(); }
};

}  // namespace amalgam::detail
