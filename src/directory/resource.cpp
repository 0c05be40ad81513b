#include <amalgam/directory/resource.hpp>

#include "directory/context_core.hpp"

namespace amalgam {

resource::~resource() {
    if (id_ != resource_id::none) core_->remove(id_);
}

resource_id resource::release() noexcept {
    return std::exchange(id_, resource_id::none);
}

void resource::send(resource_id to, std::int32_t tag, const_bytes content,
                    std::chrono::nanoseconds within) const {
    core_->send(id_, to, tag, content, within);
}

future<void> resource::start_send(resource_id to, std::int32_t tag, message_buffer content) const {
    return core_->where().spawn(
        [core = core_, from = id_, to, tag, content = std::move(content)]() mutable {
            core->send(from, to, tag, content, content.size());
        });
}

void resource::post(resource_id to, std::int32_t tag, const_bytes content) const {
    core_->post(id_, to, tag, content);
}

void resource::post(resource_id to, std::int32_t tag, message_buffer content) const {
    core_->post(id_, to, tag, std::move(content));
}

resource_message resource::receive(const message_choice& which) const {
    return *core_->messages().take(id_, which, detail::message_store::time_point::max());
}

std::optional<resource_message> resource::receive_within(std::chrono::nanoseconds time,
                                                         const message_choice& which) const {
    return core_->receive(id_, which, time);
}

std::optional<resource_message> resource::try_receive(const message_choice& which) const {
    return core_->messages().try_take(id_, which);
}

}  // namespace amalgam
