#pragma once

#include <string_view>

#include <amalgam/core/status.hpp>
#include <amalgam/rpc/archive.hpp>
#include <amalgam/rpc/body.hpp>
#include <amalgam/rpc/call_context.hpp>
#include <amalgam/rpc/extension/loans.hpp>

/// Type-erased parts of answering other than by returning.
namespace amalgam::detail {

/// Values sent from a handler to its caller, with the buffers they lend.
struct answer_values {
    /// `seen`: by serializers; null or empty: the engine's.
    answer_values(buffer_pool* pool, const archive_context* seen) noexcept
        : values(pool), context(seen) {}

    /// Replaces what was written before.
    template <typename... T>
    void write(engine_core& here, const peer& to, encoding as, const T&... each) {
        values.clear();
        lends.clear();
        const origin between{&here, to, &lends, nullptr, context};
        archive_writer(values, as, &between)(each...);
    }

    body values;
    lent_list lends;
    const archive_context* context;
};

/// An answer given once, before or long after its handler returns.
///
/// Owner:   reference-counted; the responder holds one reference.
/// Threads: any, one at a time.
class late_answer_base {
public:
    late_answer_base(const late_answer_base&) = delete;
    late_answer_base& operator=(const late_answer_base&) = delete;

    /// The call being answered.
    virtual const call_context& about() const noexcept = 0;
    /// True for the first caller only, which may then answer.
    virtual bool claim() noexcept = 0;
    /// Where the claimer writes the result before send().
    virtual answer_values& room() noexcept = 0;
    virtual engine_core& core() noexcept = 0;
    virtual encoding values_as() const noexcept = 0;
    virtual void send(status what, std::string_view text = {}) noexcept = 0;
    virtual void add_reference() noexcept = 0;
    virtual void drop_reference() noexcept = 0;
    /// True while an exception leaves the handler: it explains the failure better than a responder
    /// it destroys.
    virtual bool handler_unwinds() const noexcept = 0;

protected:
    late_answer_base() = default;
    ~late_answer_base() = default;
};

/// The other side reads no more.
struct values_unwanted : error {
    using error::error;
};

/// A stream of values: from a handler, or to one.
///
/// Threads: one at a time.
class item_sender_base {
public:
    item_sender_base(const item_sender_base&) = delete;
    item_sender_base& operator=(const item_sender_base&) = delete;

    virtual const call_context& about() const noexcept = 0;
    /// Waits for credit from the reader. Throws values_unwanted, as error{canceled}, if it wants no
    /// more.
    virtual void await_credit() = 0;
    /// Returns the credit of a value that could not be written.
    virtual void give_back_credit() noexcept = 0;
    virtual answer_values& room() noexcept = 0;
    virtual engine_core& core() noexcept = 0;
    virtual encoding values_as() const noexcept = 0;
    /// Sends the value in room(); parks until it has left or was fetched.
    virtual void send() = 0;

protected:
    item_sender_base() = default;
    ~item_sender_base() = default;
};

/// How a handler answers, other than by its result.
struct answer_way {
    late_answer_base* late = nullptr;
    item_sender_base* items = nullptr;
};

enum class answer_form : unsigned char {
    result,
    late,
    items,      ///< Sent while the handler runs.
    late_items  ///< Sent after it has returned.
};

constexpr bool streams(answer_form form) noexcept {
    return form == answer_form::items || form == answer_form::late_items;
}

}  // namespace amalgam::detail
