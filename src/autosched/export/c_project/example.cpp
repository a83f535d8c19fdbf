// The same from C++: several threads, each with a session of its own, give the same outputs.

#include "autosched_network.h"

#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kThreads = 4;
using Network = std::unique_ptr<as_network, decltype(&as_network_close)>;
using Session = std::unique_ptr<as_session, decltype(&as_session_free)>;
using Outputs = std::vector<std::vector<char>>;

void check(int status) {
    if (status != 0) {
        throw std::runtime_error(as_message());
    }
}

Network opened(const std::string &path) {
    as_network *network = nullptr;
    check(as_network_open(path.c_str(), &network));
    return {network, as_network_close};
}

Outputs run(as_network *network) {
    as_session *made = nullptr;
    check(as_session_new(network, 0, &made));
    Session session(made, as_session_free);
    std::vector<std::vector<char>> inputs;
    Outputs outputs;
    std::vector<as_array> given, taken;
    for (std::size_t n = 0; n < as_input_count(network); n++) {
        inputs.emplace_back(as_input(network, n)->bytes, 0);
        given.push_back({inputs.back().data(), inputs.back().size()});
    }
    for (std::size_t n = 0; n < as_output_count(network); n++) {
        outputs.emplace_back(as_output(network, n)->bytes, 0);
        taken.push_back({outputs.back().data(), outputs.back().size()});
    }
    check(as_run(session.get(), given.data(), given.size(), taken.data(), taken.size()));
    return outputs;
}

}  // namespace

int main(int count, char **words) {
    if (count != 2) {
        std::cerr << "usage: " << words[0] << " NETWORK.asn\n";
        return 2;
    }
    try {
        Network network = opened(words[1]);
        std::vector<Outputs> found(kThreads);
        std::vector<std::thread> threads;
        std::vector<std::string> errors(kThreads);
        for (int n = 0; n < kThreads; n++) {
            threads.emplace_back([&, n] {
                try {
                    found[n] = run(network.get());
                } catch (const std::exception &error) {
                    errors[n] = error.what();
                }
            });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        for (int n = 0; n < kThreads; n++) {
            check(errors[n].empty() && found[n] == found[0] ? 0 : -1);
        }
        std::cout << as_name(network.get()) << ": " << kThreads << " threads agree\n";
    } catch (const std::exception &error) {
        std::cerr << error.what() << "\n";
        return 1;
    }
    return 0;
}
