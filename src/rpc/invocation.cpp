#include "rpc/invocation.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include <amalgam/tasks/detail/local.hpp>

#include "rpc/engine_core.hpp"
#include "rpc/server.hpp"
#include "rpc/wire.hpp"

namespace amalgam::detail {

invocation::invocation(server& owner, engine& where, served_procedure& what, const peer& from,
                       std::uint64_t id, bool one_way, clock::time_point deadline) noexcept
    : owner_(owner), what_(what), id_(id) {
    from_ = from;
    where_ = &where;
    procedure_ = what.name;
    one_way_ = one_way;
    deadline_ = deadline;
}

void invocation::serve() noexcept {
    body result(&owner_.core().buffers());
    status what;
    try {
        std::string text;
        what = run(result, text);
        const std::size_t limit = owner_.core().max_message_bytes(from_);
        if (what.ok() && reply_bytes + result.size() + checksum_bytes > limit) {
            what = {errc::too_large};
            text = fmt::format(
                "its result has {} bytes, more than a message of this transport "
                "holds ({}); return it in parts",
                result.size(), limit - reply_bytes - checksum_bytes);
        }
        if (!what.ok()) {
            result.clear();
            archive_writer(result).raw(text.data(), std::min(text.size(), max_sentence_bytes));
        }
    } catch (...) {
        what = {errc::no_memory};
        result.clear();
    }
    owner_.conclude(*this, what, result);
}

status invocation::run(body& result, std::string& text) {
    if (deadline_ != clock::time_point::max() && owner_.core().now() >= deadline_) {
        text = "its deadline passed before it could begin; the server is behind";
        return {errc::timed_out};
    }
    void*& slot = task_local();
    void* const outer = std::exchange(slot, static_cast<call_context*>(this));
    const status what = run_handler(result, text);
    slot = outer;
    return what;
}

status invocation::run_handler(body& result, std::string& text) {
    try {
        const origin between{&owner_.core(), from_};
        const encoding as = (flags & wire_flag::xdr) != 0 ? encoding::xdr : encoding::native;
        archive_reader reader(arguments, as, &between);
        archive_writer writer(result, as, &between);
        if (what_.run->invoke(reader, writer)) return {};
        text = fmt::format("the arguments do not fit {}: {}", what_.signature,
                           reader.ok() ? "there are bytes left over" : reader.why());
        return {errc::mismatch};
    } catch (const error& why) {
        text = fmt::format("{}: {}", name(why.code().code), why.what());
        return {errc::handler_failed, static_cast<std::int32_t>(why.code().code)};
    } catch (const std::exception& why) {
        text = why.what();
    } catch (...) {
        text = "the handler threw something that is no std::exception";
    }
    return {errc::handler_failed};
}

reply_record::reply_record(server& serves, invocation& answers) noexcept
    : outgoing(&on_sent), work_unit(&run_conclude), owner(serves), call(answers) {
    is_answer = true;
}

void reply_record::on_sent(completion& self, status, std::size_t) noexcept {
    auto& reply = static_cast<reply_record&>(self);
    reply.where = outgoing::at::nowhere;
    reply.who->unpark();
}

void reply_record::run_conclude(work_unit& self) noexcept {
    auto& reply = static_cast<reply_record&>(self);
    if (reply.owner.send_reply(reply)) reply.who->unpark();
}

}  // namespace amalgam::detail
