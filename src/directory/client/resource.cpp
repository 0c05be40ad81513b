#include <amalgam/directory/resource.hpp>

#include "directory/client/context_core.hpp"

namespace amalgam {

using detail::context_core;

[[noreturn, gnu::noinline]] static void throw_empty() {
    throw error(errc::invalid,
                "this resource is empty: it was moved from, released, or default-constructed; "
                "example: resource mine = here.add({{\"type\", \"server\"}})");
}

context_core& resource::whose() const {
    if (id_ == resource_id::none || core_ == nullptr) [[unlikely]]
        throw_empty();
    return *core_;
}

resource::~resource() {
    if (id_ != resource_id::none) core_->remove(id_);
}

resource_id resource::release() noexcept {
    return std::exchange(id_, resource_id::none);
}

void resource::set(const attribute_list& changes) const {
    context_core& core = whose();
    core.while_open([&] { core.set(id_, changes); });
}

void resource::send(resource_id to, std::int32_t tag, const_bytes content,
                    std::chrono::nanoseconds within) const {
    context_core& core = whose();
    core.while_open([&] { core.send(id_, to, tag, content, within); });
}

future<void> resource::start_send(resource_id to, std::int32_t tag, message_buffer content) const {
    context_core& core = whose();
    return core.while_open([&] { return core.start_send(id_, to, tag, std::move(content)); });
}

void resource::post(resource_id to, std::int32_t tag, const_bytes content) const {
    context_core& core = whose();
    core.while_open([&] { core.post(id_, to, tag, content); });
}

void resource::post(resource_id to, std::int32_t tag, message_buffer content) const {
    context_core& core = whose();
    core.while_open([&] { core.post(id_, to, tag, std::move(content)); });
}

resource_message resource::receive(const message_choice& which) const {
    context_core& core = whose();
    resource_message got;
    core.while_open(
        [&] { core.messages().take(id_, which, detail::message_store::time_point::max(), got); });
    return got;
}

std::optional<resource_message> resource::receive_within(std::chrono::nanoseconds time,
                                                         const message_choice& which) const {
    context_core& core = whose();
    return core.while_open([&] { return core.receive(id_, which, time); });
}

std::optional<resource_message> resource::try_receive(const message_choice& which) const {
    context_core& core = whose();
    return core.while_open([&] { return core.messages().try_take(id_, which); });
}

}  // namespace amalgam
