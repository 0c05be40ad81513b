#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <amalgam/core/buffer.hpp>
#include <amalgam/rpc/call_context.hpp>
#include <amalgam/rpc/detail/answers.hpp>
#include <amalgam/rpc/detail/loans.hpp>
#include <amalgam/tasks/detail/closure.hpp>

#include "rpc/elsewhere.hpp"
#include "rpc/procedure_table.hpp"
#include "rpc/wire.hpp"

namespace amalgam::detail {

class item_sender;
class late_answer;
class server;

/// A request, as the server hands it to what serves it.
struct arrived_call {
    server& owner;
    engine& where;
    served_procedure& what;
    const peer& from;
    std::uint64_t id;
    std::uint16_t provider;
    std::uint8_t flags;
    bool one_way;
    clock::time_point deadline;
};

/// What only few requests carry.
struct request_extras {
    explicit request_extras(const_bytes wire);
    ~request_extras();

    std::vector<std::byte> bytes;
    std::optional<trace_context> trace;
    loan_ids lent_to_us;  ///< That no value has taken over yet.
    std::optional<values_elsewhere> elsewhere;
    std::uint32_t window = 0;
    std::unique_ptr<item_sender> items;  ///< Of a streamed answer; as long as the call.
};

/// A call that is served here, as the server finds it again: by its caller and id.
///
/// Threads: the engine's stream, but for call_context.
class served_call : public call_context {
public:
    std::uint64_t id() const noexcept { return id_; }
    served_procedure& what() const noexcept { return what_; }
    server& owner() const noexcept { return owner_; }
    /// The request's wire_flag: the answer is encoded likewise.
    std::uint8_t flags() const noexcept { return flags_; }
    encoding values_as() const noexcept {
        return (flags_ & wire_flag::xdr) != 0 ? encoding::xdr : encoding::native;
    }
    /// Nobody waits for the answer any more: what runs ends with its next wait.
    virtual void cancel() noexcept = 0;
    /// The caller wants so many more values.
    virtual void add_credit(std::uint32_t) noexcept {}

    // For the server's index.
    served_call* next = nullptr;
    served_call** link = nullptr;
    bool counts_as_one_way = false;  ///< See engine_options::max_one_ways.

protected:
    explicit served_call(const arrived_call& call) noexcept;
    ~served_call() = default;
    void set_canceled(std::memory_order order = std::memory_order_relaxed) noexcept {
        canceled_.store(true, order);
    }

    server& owner_;

private:
    served_procedure& what_;
    std::uint64_t id_;
    std::uint8_t flags_;
};

/// One call while its handler runs. Lives at the top of its ULT's stack, small arguments right
/// behind it; an inline call lives on the stream's stack.
///
/// Threads: the handler's; tracked and concluded on the engine's stream.
class invocation final : public served_call {
public:
    /// Arguments up to this are copied behind the object, larger ones take over a buffer.
    static constexpr std::size_t inline_bytes = 256;

    /// `runs_in`: null for an inline call.
    invocation(const arrived_call& call, ult_core* runs_in) noexcept;
    /// Keeps the extras of the request. Throws error{no_memory}.
    void keep_extras(const_bytes wire);
    /// The answer will be given by `later`, which is tracked in its stead.
    void answer_by(late_answer& later) noexcept { late_ = &later; }

    /// Runs the handler and sends the reply; on the stack that the call is to run on.
    void serve() noexcept;
    void cancel() noexcept override;
    void add_credit(std::uint32_t items) noexcept override;

    bool is_inline() const noexcept { return runs_in_ == nullptr; }
    loan_ids* lent_to_us() const noexcept { return extras_ ? &extras_->lent_to_us : nullptr; }

    const_bytes arguments;
    buffer large;  ///< Holds the arguments when they are not inline.

private:
    status run(answer_values& into, std::string& text);
    status run_watched(answer_values& into, std::string& text);
    status run_handler(answer_values& into, std::string& text);
    status get_arguments(std::string& text);
    void serve_late() noexcept;
    void release_loans() noexcept;

    std::unique_ptr<request_extras> extras_;
    ult_core* runs_in_;
    late_answer* late_ = nullptr;
    std::atomic<item_sender*> items_{nullptr};
    std::atomic<bool> begun_{false};
};
static_assert(sizeof(invocation) + invocation::inline_bytes <= inline_closure_bytes);

}  // namespace amalgam::detail
