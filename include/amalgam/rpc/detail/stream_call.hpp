#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include <amalgam/core/detail/memory.hpp>
#include <amalgam/rpc/detail/call.hpp>
#include <amalgam/rpc/detail/outgoing_values.hpp>
#include <amalgam/rpc/detail/value_queue.hpp>
#include <amalgam/tasks/work_unit.hpp>

namespace amalgam::detail {

struct rendezvous_values;

/// Throws error{invalid}: a moved-from streamed object was read.
[[noreturn]] void refuse_empty_stream();

/// A call answered with a stream of values, type-erased.
///
/// Owner:   reference-counted: held by the reader, by the engine until over(), and by each request
///          on its way to the engine.
/// Threads: as call_record; next() and leave() by the reader, cancel() by any.
class stream_call : private core_reference, public call_record {
public:
    /// Precondition: made with new, arguments written.
    void launch() noexcept;
    /// The handler also reads these, until the call is over.
    void send_along(values_reference values) noexcept { sent_along_ = std::move(values); }
    /// Before launch(): what is unread counts as engine_options::max_reader_bytes, `bytes` a value,
    /// and the window is what that allows. Values larger than a message are fetched one at a time,
    /// each when those before it were read.
    void bound_memory(std::size_t bytes) noexcept;
    void cancel() noexcept;
    /// The reader is done with the stream.
    void leave() noexcept;
    /// Where its reader waits, for comparison only; null: it does not. Any thread.
    const void* reader_seen() noexcept;

    static constexpr char reader_wait[] = "value of an rpc stream";  ///< What it waits for.

protected:
    explicit stream_call(const call_target& target);
    ~stream_call() override;

    /// True: there is a value. False: end of stream. Throws if the call failed.
    bool wait_for_value();
    /// Returns the credit of a value that was read.
    void value_was_read() noexcept;
    virtual bool has_value() const noexcept = 0;
    /// Decodes one value, and stores it on success.
    virtual void decode_item(archive_reader& from) = 0;

    std::mutex busy_;  // Guards the values, ended_, canceled_ and reader_.

private:
    friend class caller;
    struct credit_task : work_unit {
        credit_task(run_function what, stream_call& mine) noexcept : work_unit(what), whose(mine) {}
        stream_call& whose;
    };

    /// A value that waits to be fetched.
    struct deferred_value;

    void over() noexcept final;
    void release() noexcept final { drop_reference(); }
    void decode(archive_reader& from) final;
    /// On the stream. False: fetch it now.
    bool defer(const rendezvous_values& what, loan_ids& loans);
    void fetch_deferred() noexcept;
    /// The loans of a value that waits to be fetched, which it will not be.
    loan_ids take_unfetched() noexcept;
    bool has_room_for(std::size_t bytes) noexcept;
    bool is_deferred_next() noexcept;
    bool take_item(archive_reader& from);  // on the stream; false: the values end here
    static void run_credit(work_unit& self) noexcept;
    void add_reference() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
    void drop_reference() noexcept {
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }

    std::atomic<std::uint32_t> references_{2};
    std::uint32_t window_;
    bool bounded_ = false;         // By bound_memory().
    std::size_t value_bytes_ = 0;  // Reserved for each of the window.
    std::unique_ptr<deferred_value> deferred_;
    std::uint32_t read_ = 0;                 // Values read since the last credit; the reader's.
    std::atomic<std::uint32_t> granted_{0};  // Credits on their way to the engine's stream.
    std::uint32_t expected_;                 // Values that may still arrive; the stream's.
    bool fetching_ = false;                  // A value is being fetched; the stream's.
    bool ended_ = false;
    bool canceled_ = false;
    waiter* reader_ = nullptr;
    credit_task credit_;
    values_reference sent_along_;
};

template <typename T>
class typed_stream_call final : public stream_call {
public:
    explicit typed_stream_call(const call_target& target) : stream_call(target) {}

    std::optional<T> next() {
        if (!wait_for_value()) return std::nullopt;
        std::optional<T> value;
        {
            const std::lock_guard hold(busy_);
            value = values_.pop();
        }
        value_was_read();
        return value;
    }

private:
    bool has_value() const noexcept override { return !values_.empty(); }
    void decode_item(archive_reader& from) override {
        std::optional<T> value;
        emplace_new(value, from);
        if (!from.ok() || from.remaining() != 0) return;
        const std::lock_guard hold(busy_);
        values_.push(std::move(*value));
    }

    value_queue<T> values_;
};

}  // namespace amalgam::detail
