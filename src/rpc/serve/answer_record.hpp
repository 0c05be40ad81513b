#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include <amalgam/rpc/detail/answers.hpp>
#include <amalgam/tasks/parking.hpp>
#include <amalgam/tasks/work_unit.hpp>

#include "rpc/memory/loan_end.hpp"
#include "rpc/peers/outgoing.hpp"
#include "rpc/serve/invocation.hpp"
#include "rpc/wire/wire.hpp"

namespace amalgam::detail {

/// A reply, or a value of a streamed result, being sent; and where its bytes are.
///
/// Threads: the creator's until send() or the hand-over, then the engine's stream until `left`.
struct answer_record : outgoing, work_unit {
    using left_function = void (*)(answer_record&) noexcept;

    /// `left` runs on the stream when the creator may reuse the bytes.
    answer_record(served_call& answers, answer_values& what, left_function left) noexcept;

    /// Prepares it for sending: puts a failure's text in place of the values, adds a header,
    /// exposes values too large for a message. Out of memory, it becomes `no_memory`.
    void frame(status what, std::string_view text) noexcept;
    /// The same for a stream value. Throws error{no_memory}, error{closed}; then nothing must be
    /// sent. If the value is sent by rendezvous, `returned` is set to an event that fires when the
    /// peer no longer uses the value; else null.
    void frame_item(std::shared_ptr<loan_end>& returned);

    static void on_sent(completion& self, status what, std::size_t bytes) noexcept;
    static void run_send(work_unit& self) noexcept;

    served_call& call;
    answer_values& values;
    left_function has_left;
    bool is_last = true;  ///< The call ends with it.
    bool has_value = false;
    std::size_t value_bytes = 0;      ///< Wherever they travel; none of a failure.
    stream_counts* counts = nullptr;  ///< Of a value of a stream.

private:
    void keep_sentence(std::string_view text);
    void give_up_values() noexcept;
    void pack(status what, message_kind kind, std::shared_ptr<loan_end>* returned = nullptr);
    void tell_times();
    void send_by_rendezvous(bool checked, std::shared_ptr<loan_end>* returned);

    std::vector<std::byte> extras_;
    std::array<std::byte, checksum_bytes> checksum_;
};

/// An answer whose creator parks until it is sent.
struct waited_answer final : answer_record {
    waited_answer(served_call& answers, answer_values& what) noexcept
        : answer_record(answers, what, [](answer_record& self) noexcept {
              static_cast<waited_answer&>(self).who->unpark();
          }) {}
    /// Returns once sent. Call in a ULT or on a thread that may wait.
    void send() noexcept;

private:
    waiter* who = nullptr;
};

}  // namespace amalgam::detail
