#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/fabric/loop.hpp>

namespace amalgam {

/// A medium that can be made to fail.
class breakable_medium final : public broadcast_medium {
public:
    explicit breakable_medium(std::shared_ptr<broadcast_medium> on) : on_(std::move(on)) {}

    void listen(receiver function) override { on_->listen(std::move(function)); }
    bool send(const_bytes packet) noexcept override {
        return !refuses && (loses || on_->send(packet));
    }
    std::size_t max_bytes() const noexcept override { return on_->max_bytes(); }

    bool loses = false;    ///< Drops what is sent.
    bool refuses = false;  ///< Refuses to send.

private:
    std::shared_ptr<broadcast_medium> on_;
};

/// Hosts on a virtual-time network, each with a directory server and a context.
class hosts {
public:
    struct how {
        std::uint64_t seed = 0;  ///< 0: its number, from 1.
        bool in_one = false;     ///< The context lives in the directory's process.
        directory_limits limits{};
    };
    struct shape {
        std::size_t fanout = 8;
        bool by_medium = false;  ///< They find each other by broadcast; else by host0's address.
        /// Hosts are certified as "hostN" of the group "hosts", contexts of their own processes as
        /// "userhostN" of "users", and each group has its role. Others have none.
        bool with_roles = false;
        /// Signs broadcasts; of each host its own.
        std::function<std::shared_ptr<const credentials>(const std::string&)> trust{};
    };
    explicit hosts(std::size_t count) : hosts(count, shape{}) {}
    hosts(std::size_t count, shape like) : shape_(std::move(like)) {
        net.delay(std::chrono::microseconds(50), std::chrono::microseconds(150));
        for (std::size_t i = 0; i < count; ++i)
            add();
    }

    void add() { add({}); }
    void add(const how& like) {
        const std::string name = "host" + std::to_string(all_.size());
        auto one = std::make_unique<host>();
        one->serves = std::make_unique<engine>(net.port(name));
        if (!like.in_one) one->uses = std::make_unique<engine>(net.port("user" + name));
        if (shape_.with_roles) {
            identify(name, "hosts");
            if (!like.in_one) identify("user" + name, "users");
        }
        directory_options options;
        options.ring.seed = like.seed != 0 ? like.seed : all_.size() + 1;
        options.ring.fanout = shape_.fanout;
        if (shape_.trust) options.ring.trust = shape_.trust(name);
        if (shape_.with_roles)
            options.roles = {.members = allow_list{.groups = {"hosts"}},
                             .contexts = allow_list{.groups = {"users"}}};
        options.limits = like.limits;
        if (shape_.by_medium) {
            one->medium = std::make_shared<breakable_medium>(net.broadcast(name));
            options.ring.medium = one->medium;
        } else if (!all_.empty()) {
            options.ring.others = {"loop://host0"};
        }
        one->directory = std::make_unique<directory_server>(*one->serves, options);
        all_.push_back(std::move(one));
    }
    template <typename Work>
    auto in(std::size_t which, Work work) {
        host& where = *all_[which];
        engine& user = where.uses ? *where.uses : *where.serves;
        auto done = user.spawn([&where, &user, work = std::move(work)]() mutable {
            if (!where.here) {
                where.here = std::make_unique<context>(
                    user, context_options{.directory = where.serves->address()});
            }
            return work(*where.here);
        });
        for (int i = 0; i < 1000 && !done.ready(); ++i)
            net.run_for(std::chrono::milliseconds(10));
        EXPECT_TRUE(done.ready());
        return done.get();
    }
    std::optional<found_resource> find(std::size_t from, const attribute_list& query) {
        return in(from, [&](context& here) { return here.find(query); });
    }
    resource_id add_resource(std::size_t at, const attribute_list& what) {
        return in(at, [&](context& here) { return here.add(what).release(); });
    }
    /// As if the port of that name had proved by a certificate to be of that name and group.
    void identify(const std::string& name, const std::string& group) {
        net.identify(name, {.kind = identity_kind::certificate, .name = name, .groups = {group}});
    }
    /// Starts opening a context there, without waiting.
    future<bool> begin_to_use(std::size_t which) {
        host& where = *all_[which];
        return where.uses->spawn([&where] {
            try {
                const context brief(*where.uses, {.directory = where.serves->address()});
                return true;
            } catch (const error&) {
                return false;
            }
        });
    }
    std::size_t contexts_at(std::size_t which) const { return all_[which]->directory->contexts(); }
    std::size_t known_by(std::size_t which) const { return all_[which]->directory->servers(); }
    std::size_t size() const { return all_.size(); }
    breakable_medium& medium_of(std::size_t which) { return *all_[which]->medium; }
    std::uint64_t counted(std::size_t which, const char* name) {
        return counted(*all_[which]->serves, name);
    }
    static std::uint64_t counted(engine& at, std::string_view name) {
        for (const counter_value& each : at.counters().snapshot())
            if (each.name == name) return each.value;
        return 0;
    }

    loop_network net{{.seed = 7}};

private:
    struct host {
        std::unique_ptr<engine> serves, uses;
        std::shared_ptr<breakable_medium> medium;
        std::unique_ptr<directory_server> directory;
        std::unique_ptr<context> here;
    };
    const shape shape_;
    std::vector<std::unique_ptr<host>> all_;
};

}  // namespace amalgam
