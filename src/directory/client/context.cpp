#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <amalgam/directory/context.hpp>
#include <amalgam/rpc/extension/inside.hpp>

#include "directory/client/context_core.hpp"

namespace amalgam {

namespace {

std::vector<std::string> usual_ports() {
    const char* const said = std::getenv("AMALGAM_PORTS");
    std::string_view list = said != nullptr ? said : "";
    std::vector<std::string> all;
    while (!list.empty()) {
        const std::size_t end = std::min(list.find(','), list.size());
        if (end != 0) all.emplace_back(list.substr(0, end));
        list.remove_prefix(std::min(end + 1, list.size()));
    }
    if (all.empty()) all = {"shm://", "tcp://"};
    return all;
}

}  // namespace

context::context(context_options options) : context(usual_ports(), std::move(options)) {}

context::context(endpoints ports, context_options options)
    : core_(std::make_shared<detail::context_core>(
          std::make_unique<engine>(std::move(ports), engine_options{.name = "context"}),
          std::move(options))) {
    core_->start();
    self_ = resource(core_, core_->id());
}

context::context(engine& on, context_options options)
    : core_(std::make_shared<detail::context_core>(on, std::move(options))) {
    core_->start();
    self_ = resource(core_, core_->id());
}

context::~context() {
    self_.release();
    core_->end();
}

engine& context::where() noexcept {
    return core_->where();
}

resource context::add(const attribute_list& what) {
    return resource(core_, core_->add(what));
}

std::optional<found_resource> context::find(attribute_list query) {
    return core_->find(resource_id::none, std::move(query)).first;
}

std::optional<found_resource> context::find_by_id(resource_id id, attribute_list query) {
    if (id == resource_id::none) return std::nullopt;
    return core_->find(id, std::move(query)).first;
}

result<found_resource> context::try_find(attribute_list query) {
    try {
        auto [found, silent] = core_->find(resource_id::none, std::move(query));
        if (found) return std::move(*found);
        if (silent == 0) return {errc::not_found, "no resource matches the query"};
        return {errc::timed_out,
                fmt::format("no resource was found that matches the query, and at least {} "
                            "directories did not answer; query again, or do without them",
                            silent)};
    } catch (const error& why) {
        return {why.code().code, why.what()};
    }
}

peer context::lookup(resource_id which) {
    return core_->lookup(which);
}

resource_search context::search(attribute_list query) {
    const std::uint32_t number =
        core_->while_open([&] { return core_->start_search(query); });  // For rocl_exit().
    return resource_search(core_, std::move(query), number);
}

resource_watch context::watch(attribute_list query,
                              std::function<void(const resource_change&)> function) {
    return resource_watch(core_->watch(std::move(query), std::move(function)));
}

message_buffer context::take_buffer(std::size_t bytes) {
    return core_->take_buffer(bytes);
}

std::optional<found_resource> resource_search::next() {
    if (core_ == nullptr) return std::nullopt;
    auto answer = core_->while_open([&] { return core_->next(number_, query_, silent_); });
    if (!answer) core_.reset();
    return answer;
}

void resource_search::stop() noexcept {
    if (core_ == nullptr) return;
    core_->stop_search(number_);
    core_.reset();
}

}  // namespace amalgam
