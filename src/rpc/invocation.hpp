#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <amalgam/core/buffer.hpp>
#include <amalgam/rpc/body.hpp>
#include <amalgam/rpc/call_context.hpp>
#include <amalgam/rpc/detail/call.hpp>
#include <amalgam/tasks/detail/closure.hpp>

#include "rpc/procedure_table.hpp"

namespace amalgam::detail {

class server;

/// One call that is served here: from the arrival of the request until the reply has left.
/// Lives at the top of its ULT's stack, small arguments right behind it; an inline call lives
/// on the stream's stack.
///
/// Threads: the handler's, but for canceled(); tracked and concluded on the engine's stream.
class invocation final : public call_context {
public:
    /// Arguments up to this are copied behind the object, larger ones take over a buffer.
    static constexpr std::size_t inline_bytes = 256;

    invocation(server& owner, engine& where, served_procedure& what, const peer& from,
               std::uint64_t id, bool one_way, clock::time_point deadline) noexcept;

    /// Runs the handler and sends the reply; on the stack that the call is to run on.
    void serve() noexcept;

    std::uint64_t id() const noexcept { return id_; }
    served_procedure& what() const noexcept { return what_; }
    void cancel() noexcept { canceled_.store(true, std::memory_order_relaxed); }

    const_bytes arguments;
    std::uint8_t flags = 0;  ///< The request's wire_flag: the reply is encoded likewise.
    buffer large;            ///< Holds the arguments when they are not inline.

    // For the server's index.
    invocation* next = nullptr;
    invocation** link = nullptr;

private:
    status run(body& result, std::string& text);
    status run_handler(body& result, std::string& text);

    server& owner_;
    served_procedure& what_;
    std::uint64_t id_;
};
static_assert(sizeof(invocation) + invocation::inline_bytes <= inline_closure_bytes);

/// A reply on its way out; on the stack of who waits for it to leave.
struct reply_record final : outgoing, work_unit {
    reply_record(server& serves, invocation& answers) noexcept;

    static void on_sent(completion& self, status what, std::size_t bytes) noexcept;
    static void run_conclude(work_unit& self) noexcept;

    server& owner;
    invocation& call;
    waiter* who = nullptr;  ///< Parked until the reply has left.
    std::array<std::byte, 4> checksum;
};

}  // namespace amalgam::detail
