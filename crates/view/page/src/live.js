// News of a running training: asks the server of the page, and nobody else.

import { Data } from './data.js';

const PAUSE = 1000;
const LATER = 4000;

export async function live(app) {
  let meshes = 0;
  for (;;) {
    let pause = PAUSE;
    try {
      const news = await (await fetch('report.json', { cache: 'no-store' })).json();
      app.data.description.report = news.report;
      app.showReport();
      if (news.meshes !== meshes) {
        const { description, blocks, epoch } = await (await fetch('meshes.json', { cache: 'no-store' })).json();
        description.report = news.report;
        meshes = news.meshes;
        await app.addEpoch(epoch, new Data(description, (i) => blocks[i]));
      }
      if (news.report.progress?.ended) return;
    } catch {
      // The training has ended or is stopped; what was shown stays.
      const progress = app.data.description.report?.progress;
      if (progress) {
        progress.text = 'not connected';
        app.showReport();
      }
      pause = LATER;
    }
    await new Promise((done) => setTimeout(done, pause));
  }
}
