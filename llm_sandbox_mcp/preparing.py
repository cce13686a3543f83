from .kernel import Places


class Preparer:
    def __init__(self, profile, languages, cache):
        pass

    async def __aenter__(self):
        return self

    async def __aexit__(self, *a):
        pass

    async def places(self, language, on_progress):
        return Places(language, "tmpx")

    async def version(self, language):
        return ""
