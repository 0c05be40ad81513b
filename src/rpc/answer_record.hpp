#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include <amalgam/rpc/detail/answers.hpp>
#include <amalgam/rpc/detail/call.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/parking.hpp>
#include <amalgam/tasks/work_unit.hpp>

#include "rpc/invocation.hpp"
#include "rpc/wire.hpp"

namespace amalgam::detail {

/// A reply, or a value of a streamed answer, on its way out; where its bytes are.
///
/// Threads: its maker's until send() or the hand-over, then the engine's stream until `left`.
struct answer_record : outgoing, work_unit {
    using left_function = void (*)(answer_record&) noexcept;

    /// `left` runs when the bytes are the maker's again, on the stream.
    answer_record(served_call& answers, answer_values& what, left_function left) noexcept;

    /// Makes it ready to be sent: a failure's text in place of the values, a header, values that
    /// are too many for a message put elsewhere. Where there is no memory it becomes `no_memory`.
    void frame(status what, std::string_view text) noexcept;
    /// The same for a value of a stream. Throws error{no_memory}, error{closed}; then nothing is
    /// to be sent. `returned` is set once the peer does not use the value any more, if it is
    /// elsewhere, and else null.
    void frame_item(std::shared_ptr<event>& returned);

    static void on_sent(completion& self, status what, std::size_t bytes) noexcept;
    static void run_send(work_unit& self) noexcept;

    served_call& call;
    answer_values& values;
    left_function has_left;
    bool is_last = true;  ///< The call ends with it.

private:
    void keep_sentence(std::string_view text);
    void give_up_values() noexcept;
    void pack(status what, message_kind kind, std::shared_ptr<event>* returned = nullptr);
    void leave_elsewhere(bool checked, std::shared_ptr<event>* returned);

    std::vector<std::byte> extras_;
    std::array<std::byte, checksum_bytes> checksum_;
};

/// One that its maker waits for, parked.
struct waited_answer final : answer_record {
    waited_answer(served_call& answers, answer_values& what) noexcept
        : answer_record(answers, what, [](answer_record& self) noexcept {
              static_cast<waited_answer&>(self).who->unpark();
          }) {}
    /// Returns when it has left. In a ULT or on a thread that may wait.
    void send() noexcept;

private:
    waiter* who = nullptr;
};

}  // namespace amalgam::detail
