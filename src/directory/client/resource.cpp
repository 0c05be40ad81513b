#include <amalgam/directory/resource.hpp>

#include "directory/client/context_core.hpp"

namespace amalgam {

detail::context_core& resource::whose() const {
    if (id_ == resource_id::none || core_ == nullptr)
        throw error(errc::invalid,
                    "this resource is empty: it was moved from, released, or default-constructed; "
                    "example: resource mine = here.add({{\"type\", \"server\"}})");
    core_->check_not_closed();
    return *core_;
}

resource::~resource() {
    if (id_ != resource_id::none) core_->remove(id_);
}

resource_id resource::release() noexcept {
    return std::exchange(id_, resource_id::none);
}

void resource::set(const attribute_list& changes) const {
    whose().set(id_, changes);
}

void resource::send(resource_id to, std::int32_t tag, const_bytes content,
                    std::chrono::nanoseconds within) const {
    whose().send(id_, to, tag, content, within);
}

future<void> resource::start_send(resource_id to, std::int32_t tag, message_buffer content) const {
    return whose().start_send(id_, to, tag, std::move(content));
}

void resource::post(resource_id to, std::int32_t tag, const_bytes content) const {
    whose().post(id_, to, tag, content);
}

void resource::post(resource_id to, std::int32_t tag, message_buffer content) const {
    whose().post(id_, to, tag, std::move(content));
}

resource_message resource::receive(const message_choice& which) const {
    return *whose().messages().take(id_, which, detail::message_store::time_point::max());
}

std::optional<resource_message> resource::receive_within(std::chrono::nanoseconds time,
                                                         const message_choice& which) const {
    return whose().receive(id_, which, time);
}

std::optional<resource_message> resource::try_receive(const message_choice& which) const {
    return whose().messages().try_take(id_, which);
}

}  // namespace amalgam
