#include "groups.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include <ff/distributed/message.hpp>
#include <ff/ff.hpp>

namespace ff {

void message2_t::cleanContent() {
    if (data != nullptr && cleanup) {
        try {
            if (freeCallback != nullptr)
                freeCallback(blobOwner, data, size);
            else
                std::free(data);
        } catch (...) {
            error("the function that frees an item's bytes threw an exception\n");
        }
    }
    data = nullptr;
    size = 0;
    cleanup = false;
    blobOwner = nullptr;
    freeCallback = nullptr;
}

namespace detail {

group_registry& groups() {
    static group_registry all;
    return all;
}

const group_settings* group_config::find(const std::string& name) const {
    for (const group_settings& each : groups)
        if (each.name == name) return &each;
    return nullptr;
}

bool serialize_function::through(const std::function<bool(void*, dataBuffer&)>& older, void* item,
                                 message2_t& to) {
    auto bytes = std::make_unique<dataBuffer>();
    const bool copied = older(item, *bytes);
    if (bytes->isStream()) {
        const std::string text = bytes->str();
        to.data = static_cast<char*>(std::malloc(text.size() + 1));
        if (to.data == nullptr) throw std::bad_alloc();
        std::memcpy(to.data, text.data(), text.size());
        to.size = text.size();
        to.cleanup = true;
        return copied;
    }
    to.data = bytes->getPtr();
    to.size = bytes->getLen();
    if (bytes->isCleanup()) {
        to.cleanup = true;
        to.freeCallback = [](void* owner, char*, size_t) {
            delete static_cast<dataBuffer*>(owner);
        };
        to.blobOwner = bytes.release();
    }
    return copied;
}

namespace {

void enter(const std::string& name, ff_node* base, const std::string& host) {
    group_registry& all = groups();
    if (!all.names.insert(name).second)
        all.faults.push_back("createGroup: there are two groups named " + name +
                             ", expected one of each name");
    if (!host.empty()) all.hosts[name] = host;
    if (base != nullptr) all.of.emplace(base, name);
}

}  // namespace
}  // namespace detail

GroupInterface::GroupInterface(std::string group, ff_node* from)
    : name(std::move(group)), base(from) {}

GroupInterface& GroupInterface::operator<<(ff_node* node) {
    detail::group_registry& all = detail::groups();
    if (node == nullptr) {
        all.faults.push_back("group " + name + ": << of a null pointer, expected a node");
        return *this;
    }
    // Groups of parts of a block: the block itself is in none.
    if (base != nullptr) all.of.erase(base);
    const auto [there, is_new] = all.of.emplace(node, name);
    if (!is_new && there->second != name)
        all.faults.push_back("a node is put into group " + name + ", and is in group " +
                             there->second + " already, expected one group for each node");
    return *this;
}

GroupInterface ff_node::createGroup(const std::string& name, const std::string& host) {
    detail::enter(name, this, host);
    return GroupInterface(name, this);
}
GroupInterface createGroup(const std::string& name, const std::string& host) {
    detail::enter(name, nullptr, host);
    return GroupInterface(name);
}

std::string DFF_getMyGroup() {
    return detail::groups().mine;
}
void setBatchSize(int items) {
    for (auto& each : detail::groups().config.groups)
        each.batch_size = static_cast<size_t>(std::max(items, 1));
}
void setBatchByteSize(size_t bytes) {
    for (auto& each : detail::groups().config.groups)
        each.batch_bytes = bytes;
}

}  // namespace ff
