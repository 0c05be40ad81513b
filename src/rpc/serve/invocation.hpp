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
#include <amalgam/rpc/extension/loans.hpp>
#include <amalgam/tasks/extension/closure.hpp>
#include <amalgam/tasks/extension/small_block.hpp>

#include "rpc/memory/rendezvous.hpp"
#include "rpc/serve/procedure_table.hpp"
#include "rpc/tracing/slow_calls.hpp"
#include "rpc/wire/wire.hpp"

namespace amalgam::detail {

struct counted_row;
class item_sender;
class late_answer;
class server;

/// A request, as passed from the server to its handler.
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
struct request_extras : in_small_block {
    explicit request_extras(const_bytes wire);
    ~request_extras();

    std::vector<std::byte> bytes;
    std::optional<trace_context> trace;
    loan_ids lent_to_us;  ///< Borrowed buffers not yet taken over by a value.
    std::optional<rendezvous_values> rendezvous;
    std::uint32_t window = 0;
    std::uint64_t arrived = 0;  ///< Of a call that is recorded, or asks for times.
    call_times times;
    bool wants_times = false;
    counted_row* row = nullptr;          ///< Where it is counted, if it is,
    clock::time_point came{};            ///< and when it came.
    std::unique_ptr<item_sender> items;  ///< For a streamed result; lives as long as the call.
};

/// A call being served, found by caller and id.
///
/// Threads: the engine's stream, except for call_context.
class served_call : public call_context {
public:
    std::uint64_t id() const noexcept { return id_; }
    served_procedure& what() const noexcept { return what_; }
    server& owner() const noexcept { return owner_; }
    /// The request's wire_flag; the answer uses the same encoding.
    std::uint8_t flags() const noexcept { return flags_; }
    encoding values_as() const noexcept {
        return (flags_ & wire_flag::xdr) != 0 ? encoding::xdr : encoding::native;
    }
    /// The ULT that runs the handler, for comparison only. Null: it has returned.
    virtual const void* unit() noexcept = 0;
    /// The answer is not wanted any more: the handler's next wait ends.
    virtual void cancel() noexcept = 0;
    /// The caller grants credit for that many more values.
    virtual void add_credit(std::uint32_t) noexcept {}
    /// Its handler sends a stream, and waits for the caller to read it.
    virtual bool waits_for_credit() const noexcept { return false; }

    // Link in the server's index.
    served_call* next = nullptr;
    served_call** link = nullptr;
    const call_times* times = nullptr;  ///< To be told by the answer.
    bool counts_as_one_way = false;     ///< See engine_options::max_one_ways.
    bool measured = false;              ///< The handler's time is to be told.

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

/// One call while its handler runs. Lives at the top of its ULT's stack, followed by small
/// arguments; an inline call lives on the stream's stack.
///
/// Threads: the handler's; tracked and concluded on the engine's stream.
class invocation final : public served_call {
public:
    /// Arguments up to this size are copied behind the object; larger ones keep a buffer.
    static constexpr std::size_t inline_bytes = 256;

    /// `runs_in`: null for an inline call.
    invocation(const arrived_call& call, ult_core* runs_in) noexcept;
    /// Keeps the extras of the request. Throws error{no_memory}.
    void keep_extras(const_bytes wire);
    /// Its times are added to that row once the handler has returned. After keep_extras().
    void count_in(counted_row& row, clock::time_point came) noexcept {
        extras_->row = &row;
        extras_->came = came;
    }
    /// `later` will answer the call, and is tracked in its place.
    void answer_by(late_answer& later) noexcept { late_ = &later; }

    /// Runs the handler and sends the reply, on the stack of the call.
    void serve() noexcept;
    const void* unit() noexcept override { return runs_in_; }
    void cancel() noexcept override;
    void add_credit(std::uint32_t items) noexcept override;
    bool waits_for_credit() const noexcept override;

    bool is_inline() const noexcept { return runs_in_ == nullptr; }
    /// Of a streamed answer, as the request asks for it; else 0.
    std::uint32_t window() const noexcept { return extras_ ? extras_->window : 0; }
    /// As they were sent, also by rendezvous.
    std::size_t argument_bytes() const noexcept {
        return extras_ && extras_->rendezvous
                   ? static_cast<std::size_t>(extras_->rendezvous->key.bytes)
                   : arguments.size();
    }
    loan_ids* lent_to_us() const noexcept { return extras_ ? &extras_->lent_to_us : nullptr; }

    /// Neither the request nor its procedure has anything out of the ordinary, and no interceptor
    /// watches it.
    bool plain = false;
    const_bytes arguments;
    buffer large;  ///< Holds the arguments when they are not inline.

private:
    friend class server;  // See plain_calls.cpp.

    bool run_plain(answer_values& values, void*& local) noexcept;
    void serve_plain() noexcept;
    bool is_flat() const noexcept {
        return what().flat_request == request_bytes + arguments.size() &&
               values_as() == encoding::native;
    }
    void serve_flat(void*& local) noexcept;
    bool begin(bool on_owner) noexcept;
    /// Its deadline has passed.
    bool is_late() const noexcept;
    void serve_any() noexcept;
    void answer(answer_values& values, status what, std::string_view text) noexcept;
    void answer_thrown(answer_values& values) noexcept;
    void answer_misfit(answer_values& values, const archive_reader& reader) noexcept;
    status misfit(const archive_reader& reader, std::string& text) const;
    status thrown(std::string& text);
    status run(answer_values& into, std::string& text);
    status run_watched(answer_values& into, std::string& text);
    status run_handler(answer_values& into, std::string& text);
    status get_arguments(std::string& text);
    void serve_late() noexcept;
    void release_loans() noexcept;
    clock::time_point start_measuring() const noexcept;
    void stop_measuring(clock::time_point began) const noexcept;

    std::unique_ptr<request_extras> extras_;
    ult_core* runs_in_;
    late_answer* late_ = nullptr;
    std::atomic<item_sender*> items_{nullptr};
    std::atomic<bool> begun_{false};
};
static_assert(sizeof(invocation) + invocation::inline_bytes <= inline_closure_bytes);

}  // namespace amalgam::detail
