#pragma once

#include <string_view>

#include <amalgam/core/status.hpp>
#include <amalgam/rpc/archive.hpp>
#include <amalgam/rpc/body.hpp>
#include <amalgam/rpc/call_context.hpp>
#include <amalgam/rpc/detail/loans.hpp>

/// How handlers answer other than by returning: the parts that do not know the types.
namespace amalgam::detail {

/// Values on their way from a handler to its caller, with what they lend.
struct answer_values {
    explicit answer_values(buffer_pool* pool) noexcept : values(pool) {}

    /// Replaces what was written before.
    template <typename... T>
    void write(engine_core& here, const peer& to, encoding as, const T&... each) {
        values.clear();
        lends.clear();
        const origin between{&here, to, &lends, nullptr};
        archive_writer(values, as, &between)(each...);
    }

    body values;
    lent_list lends;
};

/// An answer that may be given before, or long after, its handler returns; once.
///
/// Owner:   counted references: one belongs to the responder.
/// Threads: any, one at a time.
class late_answer_base {
public:
    late_answer_base(const late_answer_base&) = delete;
    late_answer_base& operator=(const late_answer_base&) = delete;

    /// The call that it answers.
    virtual const call_context& about() const noexcept = 0;
    /// True for the first who asks: it may answer.
    virtual bool claim() noexcept = 0;
    /// Where the first writes the result; then it says that it is there.
    virtual answer_values& room() noexcept = 0;
    virtual engine_core& core() noexcept = 0;
    virtual encoding values_as() const noexcept = 0;
    virtual void send(status what, std::string_view text = {}) noexcept = 0;
    virtual void add_reference() noexcept = 0;
    virtual void drop_reference() noexcept = 0;
    /// An exception leaves the handler just now, and says better what happened than a responder
    /// that it destroys could.
    virtual bool handler_unwinds() const noexcept = 0;

protected:
    late_answer_base() = default;
    ~late_answer_base() = default;
};

/// Values that a handler yields, one after the other.
///
/// Threads: the handler's.
class item_sender_base {
public:
    item_sender_base(const item_sender_base&) = delete;
    item_sender_base& operator=(const item_sender_base&) = delete;

    virtual const call_context& about() const noexcept = 0;
    /// Waits until the caller wants another. Throws error{canceled} when it wants no more.
    virtual void await_credit() = 0;
    /// The value could not be written: another may take its place.
    virtual void give_back_credit() noexcept = 0;
    virtual answer_values& room() noexcept = 0;
    virtual engine_core& core() noexcept = 0;
    virtual encoding values_as() const noexcept = 0;
    /// Sends what is in the room; parks until it has left, or was fetched.
    virtual void send() = 0;

protected:
    item_sender_base() = default;
    ~item_sender_base() = default;
};

/// What a handler answers by, other than its result.
struct answer_way {
    late_answer_base* late = nullptr;
    item_sender_base* items = nullptr;
};

enum class answer_form : unsigned char { result, late, items };

}  // namespace amalgam::detail
