#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <utility>

#include <amalgam/rpc/detail/answers.hpp>
#include <amalgam/rpc/extension/core_reference.hpp>
#include <amalgam/tasks/event.hpp>

namespace amalgam::detail {

class late_answer;
struct remote_procedure;

/// The call that values belong to, as outgoing_values::cancel() needs it.
class cancelable_call {
public:
    /// Lets it live until its cancel() has been seen to.
    virtual void keep() noexcept = 0;
    /// After keep(). At most once. Any thread.
    virtual void cancel_kept() noexcept = 0;

protected:
    ~cancelable_call() = default;
};

/// The caller's end of a stream of values to a handler, type-erased. The handler's reader calls
/// back for the values, and this answers that call item by item: so window, credit, rendezvous and
/// cancel are those of a streamed answer.
///
/// Owner:   reference-counted: by the user's object, by the call until it is over, and by the
///          answer to the reader.
/// Threads: await_credit() to send() and finish() by one thread at a time; the rest by any.
class outgoing_values final : public item_sender_base, private core_reference {
public:
    /// With one reference. `what`: the procedure whose handler reads them. `seen`: by serializers.
    outgoing_values(engine_core& core, const remote_procedure& what, archive_context seen);
    /// From now on a reader finds it, until call_over(), which must follow. Throws
    /// error{no_memory}.
    void publish();
    void add_reference() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
    void drop_reference() noexcept {
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }

    /// Unguessable: who has it may read the values, once.
    std::uint64_t id() const noexcept { return id_; }
    /// False: nobody reads them any more. Throws error{invalid} after finish(), and
    /// error{closed} in a child of fork().
    bool wanted() const;
    /// No more values follow.
    void finish() noexcept;
    /// The user is done with it; without finish(), the reader is told so.
    void leave() noexcept;

    /// The reader has called. False: it must not.
    bool attach(late_answer& answer, item_sender_base& items) noexcept;
    /// The reader has left. On the engine's stream.
    void reader_left() noexcept;
    /// Before the call begins: what cancel() cancels until call_over().
    void belongs_to(cancelable_call& call) noexcept { call_ = &call; }
    /// Asks the call to end as canceled; without effect once it is over. Any thread.
    void cancel() noexcept;
    /// The call has ended.
    void call_over() noexcept;

    // For a stream_writer. After wanted().
    const call_context& about() const noexcept override;
    void await_credit() override;
    void give_back_credit() noexcept override;
    answer_values& room() noexcept override { return items_->room(); }
    engine_core& core() noexcept override { return core_; }
    encoding values_as() const noexcept override { return items_->values_as(); }
    void send() override;

private:
    enum class moment : bool { now, later };

    ~outgoing_values() = default;
    void stop_sending() noexcept;
    void conclude(moment when) noexcept;

    engine_core& core_;
    const std::uint64_t id_;
    std::atomic<std::uint32_t> references_{1};
    mutable std::mutex busy_;  // Guards the rest.
    cancelable_call* call_ = nullptr;
    event settled_;  // There is a reader, or will never be one.
    late_answer* answer_ = nullptr;
    item_sender_base* items_ = nullptr;
    bool attached_ = false;
    bool sending_ = false;
    bool finished_ = false;
    bool left_ = false;  // By either side.
    std::string_view why_left_ = "the caller left its stream without finish()";
    bool over_ = false;
    const remote_procedure& what_;
    const archive_context context_;
};

/// One reference.
class values_reference {
public:
    values_reference() = default;
    explicit values_reference(outgoing_values& held) noexcept : held_(&held) {}
    values_reference(values_reference&& other) noexcept
        : held_(std::exchange(other.held_, nullptr)) {}
    values_reference& operator=(values_reference&& other) noexcept {
        values_reference moved(std::move(other));
        std::swap(held_, moved.held_);
        return *this;
    }
    ~values_reference() {
        if (held_ != nullptr) held_->drop_reference();
    }
    values_reference another() const noexcept {
        held_->add_reference();
        return values_reference(*held_);
    }
    explicit operator bool() const noexcept { return held_ != nullptr; }
    outgoing_values* operator->() const noexcept { return held_; }
    outgoing_values& operator*() const noexcept { return *held_; }

private:
    outgoing_values* held_ = nullptr;
};

values_reference open_values(engine_core& core, const remote_procedure& what, archive_context seen);

/// Throws error{invalid}: a moved-from stream was written to.
[[noreturn]] void refuse_empty_outgoing();

/// The answer to a reader, given by what the stream's id stands for.
struct values_opener {
    late_answer_base& answer;
    item_sender_base& items;
};

/// Values of a type that the signature of another call tells.
struct any_values {
    static constexpr std::string_view amalgam_type_name = "values";
};

}  // namespace amalgam::detail
