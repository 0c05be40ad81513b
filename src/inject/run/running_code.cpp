#include "inject/run/running_code.hpp"

#include <algorithm>
#include <exception>
#include <string>
#include <string_view>

#include <amalgam/core/detail/in_words.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/inject/detail/services.hpp>
#include <amalgam/inject/image.h>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/extension/encoded_call.hpp>

using namespace amalgam;
using amalgam::detail::running_code;

namespace {

running_code& code_with_engine() {
    running_code* const mine = running_code::current();
    if (mine == nullptr)
        throw error(errc::invalid, "only code that runs for a call or a message has an engine");
    if (mine->confined) throw error(errc::denied, "confined code has no engine");
    return *mine;
}

/// The peer at that address; without one, the sender.
peer peer_at(const char* address) {
    const call_context& call = call_context::current();
    return address == nullptr || *address == 0 ? call.from() : call.where().lookup(address);
}

const bulk& attached(const running_code& mine, unsigned which) {
    if (which < mine.attached.size()) return mine.attached[which];
    throw error(errc::not_found, "the message came with no memory of that number");
}

void transfer(unsigned which, bool push, std::uint64_t offset, void* bytes, std::size_t size) {
    const bulk& memory = attached(code_with_engine(), which);
    auto* const local = static_cast<std::byte*>(bytes);
    if (push) {
        memory.push(offset, const_bytes(local, size));
    } else {
        memory.pull(offset, mutable_bytes(local, size));
    }
}

/// The result of `work`; or -1, after logging why.
template <typename Work>
long or_logged(const char* what, Work work) noexcept {
    try {
        return work();
    } catch (const std::exception& why) {
        const running_code* const mine = running_code::current();
        if (mine != nullptr && mine->confined) return -1;  // Nobody would read the log.
        log(log_level::warn, "inject", what,
            {{"image", mine == nullptr ? "" : mine->image.image().name()},
             {"why", detail::text_of(why)}});
        return -1;
    }
}

/// Passes the result or failure of `work` to `take`; returns whether it succeeded.
template <typename Work>
int or_told(amalgam_inject_taker take, void* context, Work work) noexcept {
    std::string why;
    try {
        work();
        return 0;
    } catch (const std::exception& failed) {
        why = detail::text_of(failed);
    }
    take(context, why.data(), why.size());
    return -1;
}

long copy_out(const std::vector<std::byte>& got, void* result, std::size_t room) {
    std::copy_n(got.data(), std::min(room, got.size()), static_cast<std::byte*>(result));
    return static_cast<long>(got.size());
}

}  // namespace

extern "C" {

int amalgam_inject_result(const void* data, std::size_t bytes) {
    running_code* const mine = running_code::current();
    if (mine == nullptr) return -1;
    const auto* const from = static_cast<const std::byte*>(data);
    mine->result.assign(from, from + bytes);
    return 0;
}

long amalgam_inject_onward(const char* address, const void* payload, std::size_t payload_size,
                           void* result, std::size_t room) {
    return or_logged("injected code cannot be sent onward", [&] {
        const running_code& mine = code_with_engine();
        const const_bytes message(static_cast<const std::byte*>(payload), payload_size);
        return copy_out(mine.onward.call(peer_at(address), {mine.image.image(), message}), result,
                        room);
    });
}

long amalgam_inject_call(const char* address, const char* procedure, const void* argument,
                         std::size_t bytes, void* result, std::size_t room) {
    return or_logged("a call by injected code failed", [&] {
        (void)code_with_engine();
        const auto call =
            call_context::current().where().procedure<std::vector<std::byte>(const_bytes)>(
                procedure);
        const const_bytes all(static_cast<const std::byte*>(argument), bytes);
        return copy_out(call.on(peer_at(address))(all), result, room);
    });
}

long amalgam_inject_attached(unsigned which) {
    const running_code* const mine = running_code::current();
    if (mine == nullptr || which >= mine->attached.size()) return -1;
    return static_cast<long>(mine->attached[which].bytes());
}

int amalgam_inject_pull(unsigned which, std::uint64_t offset, void* into, std::size_t bytes) {
    return static_cast<int>(or_logged("a pull by injected code failed", [&] {
        transfer(which, false, offset, into, bytes);
        return 0L;
    }));
}

int amalgam_inject_push(unsigned which, std::uint64_t offset, const void* from, std::size_t bytes) {
    return static_cast<int>(or_logged("a push by injected code failed", [&] {
        transfer(which, true, offset, const_cast<void*>(from), bytes);
        return 0L;
    }));
}

int amalgam_inject_call_typed(const char* address, const char* procedure, const char* signature,
                              const void* arguments, std::size_t bytes, amalgam_inject_taker take,
                              void* context) {
    return or_told(take, context, [&] {
        (void)code_with_engine();
        const auto result = amalgam::detail::call_encoded(
            call_context::current().where().core(), peer_at(address), procedure, signature,
            {static_cast<const std::byte*>(arguments), bytes});
        take(context, result.data(), result.size());
    });
}

int amalgam_inject_transfer(unsigned which, int push, std::uint64_t offset, void* bytes,
                            std::size_t size, amalgam_inject_taker take, void* context) {
    return or_told(take, context, [&] { transfer(which, push != 0, offset, bytes, size); });
}

}  // extern "C"
