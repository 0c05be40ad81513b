#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <amalgam/rpc/detail/bound_target.hpp>
#include <amalgam/rpc/detail/incoming_values.hpp>
#include <amalgam/rpc/detail/outgoing_values.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/extension/inside.hpp>
#include <amalgam/rpc/streamed.hpp>

#include "rpc/call/caller.hpp"
#include "rpc/context/engine_context.hpp"
#include "rpc/serve/invocation.hpp"
#include "rpc/serve/server.hpp"

namespace amalgam::detail {

incoming_values::incoming_values(std::uint64_t id) : id_(id) {
    const auto& about = static_cast<const served_call&>(call_context::current());
    target_.core = &about.owner().context().core();
    constexpr std::string_view name = "amalgam.stream";
    std::string signature = signature_text<streamed<any_values>(std::uint64_t)>();
    // Learned names are made up by peers: they are not kept.
    target_.what = about.what().learned
                       ? &intern(*target_.core, name, std::move(signature))
                       : &procedures_of(*target_.core)
                              .intern_for(about.procedure(), name, std::move(signature));
    target_.to = about.from();
    target_.as = about.values_as();
    target_.context = about.what().options.context;
    target_.urgent = true;  // Small, and one of a call that runs already.
    deadline_ = about.deadline().value_or(clock::time_point::max());
}

void incoming_values::set_window(std::uint32_t values) {
    if (begun_) {
        throw error(errc::invalid,
                    "the window of a stream cannot change once it is read: set it before the first "
                    "next()");
    }
    target_.window = clamped(values, 1u << 20);
}

const call_target& incoming_values::begin() {
    if (begun_) return target_;
    begun_ = true;
    // Whoever reads, also another ULT than the handler's.
    engine_context& context = context_of(*target_.core);
    if (deadline_ != clock::time_point::max()) {
        target_.timeout = std::max(deadline_ - context.now(), clock::duration::zero());
    }
    return target_;
}

std::size_t incoming_values::value_bytes() const noexcept {
    return caller_of(*target_.core).value_bytes_from(target_.to);
}

}  // namespace amalgam::detail
