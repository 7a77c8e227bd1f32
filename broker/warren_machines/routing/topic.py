"""Topic exchanges: patterns over words separated by dots.

`*` stands for exactly one word, `#` for any number of them, none included. Words may be empty:
"a..b" has three, "" has none, as in RabbitMQ.
"""

from __future__ import annotations

from collections.abc import Iterable

from warren_machines.metadata.records import Binding, BindingKey
from warren_machines.routing.matcher import CountedDestinations, Destination, RoutedMessage
from warren_machines.steps import Steps, pieces


def split_words(key: str) -> list[str]:
    """Return the words of a routing key or pattern."""
    return key.split(".") if key else []


class TrieNode:
    """A node of the trie: the patterns that end here, and the possible next words.

    hash  the node after `#`; matching may stay there for any number of words
    """

    __slots__ = ("ends", "greedy", "hash", "next", "star")

    def __init__(self, greedy: bool = False) -> None:
        self.greedy = greedy
        self.ends: CountedDestinations | None = None
        self.next: dict[str, TrieNode] = {}
        self.star: TrieNode | None = None
        self.hash: TrieNode | None = None

    def child(self, word: str) -> TrieNode | None:
        """Return the node after that word of a pattern."""
        if word == "#":
            return self.hash
        return self.star if word == "*" else self.next.get(word)

    def grow(self, word: str) -> TrieNode:
        """Return the node after that word, created if needed."""
        there = self.child(word)
        if there is None:
            there = TrieNode(greedy=word == "#")
            self._set(word, there)
        return there

    def prune(self, word: str) -> None:
        """Remove the node after that word when no pattern needs it."""
        child = self.child(word)
        assert child is not None, word
        if child.ends is None and not child.next and child.star is None and child.hash is None:
            self._set(word, None)

    def _set(self, word: str, child: TrieNode | None) -> None:
        if word == "#":
            self.hash = child
        elif word == "*":
            self.star = child
        elif child is None:
            del self.next[word]
        else:
            self.next[word] = child


class TopicMatcher:
    """A trie of patterns.

    A routing key is matched with the set of nodes that its words so far can have led to, each node
    once: at most (nodes) x (words) steps, however many `#` the patterns have. That is a product all
    the same, of the bindings, their words and those of the key, so the steps are counted.

    A pattern that is there all the time is found although the trie changes while a match waits: its
    nodes stay, since one that a pattern needs is not pruned.
    """

    __slots__ = ("root",)

    def __init__(self) -> None:
        self.root = TrieNode()

    def add(self, key: BindingKey, binding: Binding) -> None:
        node = self.root
        for word in split_words(binding.routing_key):
            node = node.grow(word)
        if node.ends is None:
            node.ends = CountedDestinations()
        node.ends.add(key[:2])

    def remove(self, key: BindingKey, binding: Binding) -> None:
        words = split_words(binding.routing_key)
        path = [self.root]
        for word in words:
            child = path[-1].child(word)
            assert child is not None, binding
            path.append(child)
        ends = path[-1].ends
        assert ends is not None, binding
        ends.remove(key[:2])
        if not ends.counts:
            path[-1].ends = None
        for node, word in zip(reversed(path[:-1]), reversed(words), strict=True):
            node.prune(word)

    def match(
        self, message: RoutedMessage, found: dict[Destination, None], steps: Steps
    ) -> Iterable[None]:
        reached: dict[TrieNode, None] = {}
        for routing_key in message.distinct_keys:
            yield from self._match(routing_key, reached, steps)
        for node in reached:  # once for all keys
            if node.ends is not None:
                found.update(dict.fromkeys(node.ends.counts))
                if steps.take(len(node.ends.counts)):
                    yield

    def _match(
        self, routing_key: str, reached: dict[TrieNode, None], steps: Steps
    ) -> Iterable[None]:
        """Add the nodes of the patterns that the key matches to `reached`."""
        places: dict[TrieNode, None] = {}
        _reach(self.root, places)
        for word in split_words(routing_key):
            following: dict[TrieNode, None] = {}
            for piece in pieces(places):
                for node in piece:
                    child = node.next.get(word)
                    if child is not None:
                        _reach(child, following)
                    if node.star is not None:
                        _reach(node.star, following)
                    if node.greedy:
                        _reach(node, following)
                if steps.take(len(piece)):
                    yield
            places = following
        for piece in pieces(places):
            reached.update(dict.fromkeys([node for node in piece if node.ends is not None]))
            if steps.take(len(piece)):
                yield


def _reach(node: TrieNode | None, places: dict[TrieNode, None]) -> None:
    """Add a node, and those behind a `#` that matches no word."""
    while node is not None and node not in places:
        places[node] = None
        node = node.hash
