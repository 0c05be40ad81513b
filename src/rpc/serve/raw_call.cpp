#include <utility>

#include <fmt/format.h>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/rpc/detail/call.hpp>
#include <amalgam/rpc/detail/one_way.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/extension/inside.hpp>
#include <amalgam/rpc/extension/origin.hpp>
#include <amalgam/rpc/raw_call.hpp>

#include "rpc/call/caller.hpp"
#include "rpc/serve/invocation.hpp"
#include "rpc/serve/procedure_table.hpp"
#include "rpc/serve/raw_handler.hpp"

namespace amalgam {

namespace detail {

bool raw_handler::invoke(archive_reader& arguments, archive_writer& result, const answer_way& how) {
    const encoding as = arguments.is_xdr() ? encoding::xdr : encoding::native;
    const auto& about = static_cast<const served_call&>(call_context::current());
    const raw_call call(about, about.what().signature, arguments.raw(arguments.remaining()), as,
                        how.items);
    const raw_values answer = function_(call);
    if (call.is_streamed()) return true;
    if (answer.as != as && !about.one_way()) {
        throw error(errc::invalid,
                    fmt::format("the handler of \"{}\" answers in another encoding than the "
                                "arguments have; use raw_call::values_as()",
                                printable_name(about.procedure())));
    }
    result(answer);
    return true;
}

void refuse_loans(const origin* between) {
    if (between == nullptr || between->received == nullptr || between->received->empty()) return;
    throw error(
        errc::unsupported,
        "it lends memory (a bulk descriptor that owns its memory), which cannot pass through "
        "a call without types: let the caller ask the owner itself, or return the bytes");
}

void check_raw_signature(std::string_view name, std::string_view signature) {
    const std::size_t open = signature.find('(');
    if (open == std::string_view::npos || open == 0 || signature.back() != ')') {
        throw error(errc::invalid,
                    fmt::format("\"{}\" is not a signature, expected a result and arguments; "
                                "example: \"i32(i32,string)\"",
                                printable_name(signature)));
    }
    if (takes_stream(signature)) {
        throw error(errc::unsupported,
                    fmt::format("\"{}\" reads a stream, which has no raw form: use its type",
                                printable_name(name)));
    }
}

answer_form raw_form(std::string_view signature) noexcept {
    return signature.starts_with("stream<") ? answer_form::items : answer_form::result;
}

namespace {

call_target raw_target(engine_core& core, const peer& there, std::string_view name,
                       std::string signature, encoding as, std::uint16_t provider) {
    call_target target;
    target.core = &core;
    target.what = &intern(core, name, std::move(signature));
    target.to = there;
    target.provider = provider;
    target.as = as;
    return target;
}

/// Calls the same procedure at `to`, and sends its values on.
void forward_stream(const raw_call& call, const peer& to, std::uint16_t provider) {
    const auto bytes = call.arguments();
    call_target target = raw_target(call.about().where().core(), to, call.name(),
                                    std::string(call.signature()), call.values_as(), provider);
    // To oneself, values of any size come in messages: of these, one at a time.
    if (to.is_self()) target.window = 1;
    auto onward = std::make_unique<typed_stream_call<raw_values>>(target);
    onward->write(raw_values{{bytes.begin(), bytes.end()}, target.as});
    onward->bound_memory(caller_of(*target.core).value_bytes_from(to));
    auto* const begun = onward.release();
    begun->launch();
    streamed<raw_values> values(*begun);
    while (const auto value = values.next())
        call.send(*value);
}

}  // namespace

raw_values call_raw(engine_core& core, const peer& there, std::string_view name,
                    std::string signature, const raw_values& arguments,
                    const raw_call_options& how) {
    check_raw_signature(name, signature);
    if (streams(raw_form(signature))) {
        throw error(errc::unsupported,
                    fmt::format("\"{}\" returns a stream, which call_raw() cannot read: use its "
                                "type, or forward it in a handler by raw_call::forward()",
                                printable_name(name)));
    }
    if (arguments.as != encoding::native && arguments.as != encoding::xdr) {
        throw error(errc::invalid,
                    fmt::format("raw_values::as is {}, expected encoding::native or encoding::xdr",
                                static_cast<unsigned>(arguments.as)));
    }
    call_target target =
        raw_target(core, there, name, std::move(signature), arguments.as, how.provider);
    target.timeout = how.timeout;
    if (how.one_way) {
        one_way message(target);
        message.write(arguments);
        message.send();
        return {{}, arguments.as};
    }
    blocking_call<raw_values> call(target);
    call.write(arguments);
    return call.run();
}

}  // namespace detail

void raw_call::send(const raw_values& value) const {
    if (!is_streamed()) {
        throw error(errc::invalid, fmt::format("\"{}\" does not return a stream: return its result",
                                               detail::printable_name(name())));
    }
    if (value.as != as_) {
        throw error(errc::invalid,
                    fmt::format("the handler of \"{}\" sends a value in another encoding than the "
                                "arguments have; use raw_call::values_as()",
                                detail::printable_name(name())));
    }
    stream_writer<raw_values> out(*items_);
    out(value);
}

raw_values raw_call::forward(const peer& to, std::uint16_t provider) const {
    try {
        if (is_streamed()) {
            detail::forward_stream(*this, to, provider);
            return {{}, as_};
        }
        return detail::call_raw(about_.where().core(), to, name(), std::string(signature()),
                                {{arguments_.begin(), arguments_.end()}, as_},
                                {.provider = provider, .one_way = about_.one_way()});
    } catch (const error& why) {
        const errc there = why.code().handler_code();
        if (why.code() != errc::handler_failed || there == errc::ok) throw;
        throw error(there, why.what());
    }
}

}  // namespace amalgam
